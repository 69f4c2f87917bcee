//! Who owns each instant of a start: the innermost open span; among concurrent siblings the one that ends last,
//! recursively. That path is the critical path, and the owned times add up to the whole by construction.

/// One node of the tree to divide. Nodes come parents first, and lie within their parents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Index of the parent; none for a child of the whole.
    pub(super) parent: Option<usize>,
    /// First instant.
    pub(super) start: u64,
    /// First instant after it.
    pub(super) end: u64,
}

/// What one node got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Time that it owned, without its children.
    pub(super) own: u64,
    /// From when to when it or a child of it owned the time; nowhere when always another did.
    pub(super) path: Option<(u64, u64)>,
}

/// Divides `0..total` among `nodes`; the second result is what no node owned.
pub(super) fn partition(total: u64, nodes: &[Node]) -> (Vec<Share>, u64) {
    let mut children = vec![Vec::new(); nodes.len()];
    let mut top = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        match node.parent.and_then(|parent| children.get_mut(parent)) {
            Some(siblings) => siblings.push(index),
            None => top.push(index),
        }
    }
    // Last to end first; the index decides between equals, so that the result depends on nothing else.
    let order = |index: &usize| (std::cmp::Reverse(nodes[*index].end), *index);
    top.sort_by_key(order);
    children.iter_mut().for_each(|siblings| siblings.sort_by_key(order));

    let mut shares = vec![Share::default(); nodes.len()];
    let mut rest = 0;
    // Windows still to divide: (owner, window). A stack rather than recursion: delegates may nest without limit.
    let mut windows = vec![(None, 0, total)];
    while let Some((owner, start, end)) = windows.pop() {
        // Walking back from the end of the window: what starts before the cursor and ends last owns the time back to
        // its own start, for whatever ends later starts at the cursor or after it.
        let mut cursor = end;
        let mut own = 0;
        for &child in owner.map_or(&top, |owner: usize| &children[owner]) {
            let (from, to) = (nodes[child].start.max(start), nodes[child].end.min(cursor));
            if from < to {
                own += cursor - to;
                windows.push((Some(child), from, to));
                cursor = from;
            }
        }
        own += cursor - start;
        match owner {
            Some(owner) => shares[owner] = Share { own, path: Some((start, end)) },
            None => rest = own,
        }
    }
    (shares, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nodes as (parent, start, end): shares as text.
    fn check(total: u64, nodes: &[(Option<usize>, u64, u64)], expect: expect_test::Expect) {
        let nodes: Vec<Node> = nodes.iter().map(|&(parent, start, end)| Node { parent, start, end }).collect();
        let (shares, rest) = partition(total, &nodes);
        let mut text = format!("rest {rest}\n");
        for (index, share) in shares.iter().enumerate() {
            text += &format!("{index}: {}{}\n", share.own, if share.path.is_some() { " critical" } else { "" });
        }
        expect.assert_eq(&text);
    }

    #[test]
    fn innermost_owns() {
        check(
            100,
            &[(None, 10, 90), (Some(0), 20, 40), (Some(1), 25, 30)],
            expect_test::expect![[r#"
                rest 20
                0: 60 critical
                1: 15 critical
                2: 5 critical
            "#]],
        );
    }

    #[test]
    fn of_concurrent_siblings_the_last_to_end_owns() {
        check(
            100,
            &[(None, 0, 100), (Some(0), 10, 30), (Some(0), 20, 60), (Some(0), 25, 50), (Some(1), 15, 28)],
            expect_test::expect![[r#"
                rest 0
                0: 50 critical
                1: 5 critical
                2: 40 critical
                3: 0
                4: 5 critical
            "#]],
        );
    }

    prop_compose! {
        fn node(index: usize)(
            parent in prop::option::of(0..index.max(1)), a in 0u64..1000, b in 0u64..1000
        ) -> Node {
            Node { parent: parent.filter(|_| index > 0), start: a.min(b), end: a.max(b) }
        }
    }

    fn tree() -> impl Strategy<Value = Vec<Node>> {
        (0usize..24).prop_flat_map(|count| (0..count).map(node).collect::<Vec<_>>())
    }

    /// The rule, instant by instant, without cleverness.
    fn owner(nodes: &[Node], at: u64) -> Option<usize> {
        let mut owner = None;
        loop {
            let next = (0..nodes.len())
                .filter(|&i| nodes[i].parent == owner && nodes[i].start <= at && at < nodes[i].end)
                .max_by_key(|&i| (nodes[i].end, std::cmp::Reverse(i)));
            match next {
                Some(_) => owner = next,
                None => return owner,
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_rule_and_adds_up(nodes in tree(), total in 0u64..1000) {
            let mut nodes = nodes;
            for index in 0..nodes.len() {
                let (low, high) = nodes[index].parent.map_or((0, total), |p| (nodes[p].start, nodes[p].end));
                nodes[index].start = nodes[index].start.clamp(low, high);
                nodes[index].end = nodes[index].end.clamp(low, high);
            }
            let (shares, rest) = partition(total, &nodes);
            prop_assert_eq!(shares.iter().map(|s| s.own).sum::<u64>() + rest, total);
            let mut slow = vec![0; nodes.len()];
            (0..total).filter_map(|at| owner(&nodes, at)).for_each(|index| slow[index] += 1);
            prop_assert_eq!(shares.iter().map(|s| s.own).collect::<Vec<u64>>(), slow);
        }
    }
}
