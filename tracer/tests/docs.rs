//! Holds ARCHITECTURE.md to the code.

use podlapse::trace::STAGES;

#[test]
fn the_table_of_stages_is_the_registry() {
    let text = include_str!("../../ARCHITECTURE.md");
    let table: Vec<(&str, &str)> = text
        .split("\n## ")
        .find_map(|section| section.strip_prefix("Stages\n"))
        .expect("ARCHITECTURE.md has a section on stages")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .collect();
    let registry: Vec<(&str, &str)> = STAGES.iter().map(|stage| (stage.pattern, stage.doc)).collect();
    assert_eq!(table, registry);
}
