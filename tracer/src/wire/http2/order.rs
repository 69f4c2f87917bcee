//! Which opaque entry of a request's header block is its `:path`?
//!
//! `:method` and `:scheme` are in HPACK's static table, so of the fields that a request begins with (RFC 9113, 8.3) two
//! may be opaque: path and authority. Go's gRPC writes the path before the authority, in the third and fourth place.
//! Of another order (gRPC's C core begins with them) nothing is assumed but that a connection's authority never changes:
//! of two calls that share one entry, and not the other, the shared one is the authority.

/// An opaque field: its place in the block, and its entry.
pub(super) type Field = (u32, u32);

/// What is known of a client's order.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The first call's fields, in an epoch of another order than Go's.
    first: Option<[Field; 2]>,
    authority: Option<Field>,
    /// What was believed of the order turned out wrong: no entry of this connection is taken for a path.
    misplaced: bool,
}

impl Order {
    /// The table's entries are other ones from now on.
    pub(super) fn forget(&mut self) {
        (self.first, self.authority) = (None, None);
    }

    /// A call whose path is known tells which one the authority is.
    pub(super) fn authority(&mut self, field: Field) {
        self.misplaced |= *self.authority.get_or_insert(field) != field;
    }

    /// The entry that is the path; none while it may be the other one.
    pub(super) fn path(&mut self, fields: [Field; 2]) -> Option<u32> {
        if let ([_, authority], None) = (fields, self.authority)
            && fields.map(|(place, _)| place) == [2, 3]
        {
            self.authority = Some(authority);
        }
        let path = match (self.authority, fields) {
            (Some(authority), [path, other] | [other, path]) if other == authority => Some(path.1),
            (Some(_), _) => None,
            (None, _) => return self.compare(fields),
        };
        self.misplaced |= path.is_none();
        path.filter(|_| !self.misplaced)
    }

    fn compare(&mut self, fields: [Field; 2]) -> Option<u32> {
        let first = *self.first.get_or_insert(fields);
        let [same, other] = [first[0] == fields[0], first[1] == fields[1]];
        self.misplaced |= first.map(|(place, _)| place) != fields.map(|(place, _)| place) || !(same || other);
        let (authority, path) = match (same, other) {
            (true, false) => (fields[0], fields[1]),
            (false, true) => (fields[1], fields[0]),
            _ => return None,
        };
        self.authority = Some(authority);
        Some(path.1).filter(|_| !self.misplaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls by their two opaque fields; the path of each.
    #[track_caller]
    fn check(calls: &[([Field; 2], Option<u32>)]) {
        let mut order = Order::default();
        for (index, (fields, path)) in calls.iter().enumerate() {
            assert_eq!(order.path(*fields), *path, "call {index}");
        }
    }

    #[test]
    fn as_go_writes_them() {
        check(&[([(2, 7), (3, 9)], Some(7)), ([(2, 8), (3, 9)], Some(8)), ([(2, 7), (3, 9)], Some(7))]);
        // Another authority: the order is not Go's.
        check(&[([(2, 9), (3, 7)], Some(9)), ([(2, 9), (3, 8)], None), ([(2, 9), (3, 7)], None)]);
    }

    #[test]
    fn as_others_write_them() {
        let [a, b, c] = [5, 6, 7];
        // Path first, then authority first: known from the second method on.
        check(&[([(0, a), (1, 9)], None), ([(0, a), (1, 9)], None), ([(0, b), (1, 9)], Some(b))]);
        check(&[([(0, 9), (1, a)], None), ([(0, 9), (1, b)], Some(b)), ([(0, 9), (1, a)], Some(a))]);
        check(&[
            ([(1, 9), (3, a)], None),
            ([(1, 9), (3, b)], Some(b)),
            ([(1, 8), (3, c)], None),
            ([(1, 9), (3, a)], None),
        ]);
        // Nothing shared, and fields that moved.
        check(&[([(0, a), (1, 9)], None), ([(0, b), (1, 8)], None), ([(0, a), (1, 8)], None)]);
        check(&[([(0, a), (1, 9)], None), ([(0, a), (2, 9)], None), ([(0, b), (1, 9)], None)]);
    }

    #[test]
    fn a_path_that_is_known() {
        let mut order = Order::default();
        order.authority((1, 9));
        assert_eq!(order.path([(0, 5), (1, 9)]), Some(5));
        order.authority((1, 8));
        assert_eq!(order.path([(0, 5), (1, 9)]), None);
    }

    #[test]
    fn another_epoch() {
        let mut order = Order::default();
        for (fields, path) in [([(0, 5), (1, 9)], None), ([(0, 6), (1, 9)], Some(6))] {
            assert_eq!(order.path(fields), path);
        }
        order.forget();
        for (fields, path) in [([(0, 1), (1, 2)], None), ([(0, 0), (1, 2)], Some(0))] {
            assert_eq!(order.path(fields), path);
        }
    }
}
