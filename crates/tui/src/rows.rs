//! A list with one row selected, by what it is and not by where: what comes and goes moves nothing under the person's finger.

/// The rows, the one that is selected, and the window on them.
#[derive(Debug, Clone)]
pub struct Rows<K> {
    keys: Vec<K>,
    selected: usize,
    top: usize,
    height: usize,
}

impl<K> Default for Rows<K> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            selected: 0,
            top: 0,
            height: 1,
        }
    }
}

impl<K: PartialEq> Rows<K> {
    /// Takes other rows. What was selected stays selected, and stays where it is on the screen.
    pub fn renew(&mut self, keys: Vec<K>) {
        let held = self.selected();
        let found = held.and_then(|held| keys.iter().position(|key| key == held));
        let depth = self.selected.saturating_sub(self.top);
        self.selected = found.unwrap_or(self.selected).min(keys.len().saturating_sub(1));
        self.keys = keys;
        self.top = self.selected.saturating_sub(depth);
        self.settle();
    }

    /// Gives the window another height.
    pub fn set_height(&mut self, height: usize) {
        if self.height != height.max(1) {
            self.height = height.max(1);
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.top = self.top.min(self.keys.len().saturating_sub(self.height));
        self.top = self.top.min(self.selected);
        let lowest = self.selected.saturating_add(1).saturating_sub(self.height);
        self.top = self.top.max(lowest);
    }

    /// What is selected.
    pub fn selected(&self) -> Option<&K> {
        self.keys.get(self.selected)
    }

    /// Selects another row.
    pub fn step(&mut self, by: isize) {
        let last = self.keys.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
        self.settle();
    }

    /// Selects that row.
    pub fn select(&mut self, key: &K) {
        if let Some(found) = self.keys.iter().position(|known| known == key) {
            self.selected = found;
            self.settle();
        }
    }

    /// A page, less one row to hold on to.
    pub fn page(&self) -> isize {
        isize::try_from(self.height.saturating_sub(1).max(1)).unwrap_or(1)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The rows of the window; true for the selected one.
    pub fn window(&self) -> impl Iterator<Item = (&K, bool)> {
        let numbered = self.keys.iter().enumerate().skip(self.top).take(self.height);
        numbered.map(|(number, key)| (key, number == self.selected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(rows: &Rows<u32>) -> usize {
        rows.window().position(|(_, selected)| selected).unwrap()
    }

    #[test]
    fn what_comes_moves_nothing_under_the_finger() {
        let mut rows = Rows::default();
        rows.set_height(5);
        rows.renew((100..200).collect());
        rows.step(50);
        rows.step(-2);
        let before = depth(&rows);
        rows.renew((0..300).collect());
        assert_eq!((rows.selected(), depth(&rows)), (Some(&148), before));
        rows.renew((140..160).collect());
        assert_eq!((rows.selected(), depth(&rows)), (Some(&148), before));
        // What was selected is gone: what is there now takes its place, and nothing else.
        rows.renew(vec![1, 2]);
        assert_eq!(rows.selected(), Some(&2));
        rows.renew(Vec::new());
        assert_eq!(rows.selected(), None);
        rows.step(3);
        rows.renew(vec![7]);
        assert_eq!(rows.selected(), Some(&7));
    }
}
