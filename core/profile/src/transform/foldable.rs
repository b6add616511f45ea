//! What a page needs to fold trees itself, as `fold` does: into which frame a function folds, and which function names a run.

use hashbrown::HashMap;

use super::fold::Folding;
use super::functions::FunctionKey;

/// Functions as a page has them, which folds trees itself.
pub struct FoldableFunctions {
    /// The functions and the frames into which they fold, in the order of siblings. Entry 0 is the root's.
    pub rows: Vec<FunctionKey>,
    /// The number in `rows` of each function that was passed.
    pub numbers: Vec<u32>,
    /// By row: the number of the frame that a run with the name of this function becomes, 0 for functions that stay frames.
    pub frames: Vec<u32>,
    /// By row: which function of a run names it: 0 to 2 of libraries, 3 to 9 of the runtime, 10 of the kernel.
    pub priorities: Vec<u8>,
}

impl FoldableFunctions {
    /// The functions of a tree, of which entry 0 is the root's.
    pub fn of(functions: Vec<FunctionKey>) -> Self {
        let foldings: Vec<Folding> = functions.iter().map(Folding::of).collect();
        let frames = functions.iter().zip(&foldings).skip(1).map(|(function, folding)| folding.frame(function));
        let frames: Vec<Option<FunctionKey>> = std::iter::once(None).chain(frames).collect();
        let count = functions.len();
        let mut row_numbers: HashMap<FunctionKey, usize> = HashMap::new();
        let mut rows = functions;
        for (row, function) in rows.iter().enumerate().skip(1) {
            row_numbers.insert(function.clone(), row);
        }
        let mut frame_of: Vec<usize> = Vec::with_capacity(count);
        for frame in frames {
            frame_of.push(frame.map_or(0, |frame| {
                *row_numbers.entry(frame).or_insert_with_key(|frame| {
                    rows.push(frame.clone());
                    rows.len() - 1
                })
            }));
        }
        let mut order: Vec<usize> = (1..rows.len()).collect();
        order.sort_by(|one, other| rows[*one].cmp(&rows[*other]));
        order.insert(0, 0);
        let mut numbers = vec![0u32; rows.len()];
        order.iter().enumerate().for_each(|(number, row)| numbers[*row] = number as u32);
        let frame = |row: &usize| frame_of.get(*row).map_or(0, |frame| numbers[*frame]);
        let priority = |row: &usize| foldings.get(*row).map_or(0, Folding::priority);
        Self {
            frames: order.iter().map(frame).collect(),
            priorities: order.iter().map(priority).collect(),
            rows: order.iter().map(|row| std::mem::take(&mut rows[*row])).collect(),
            numbers: numbers[..count].to_vec(),
        }
    }
}
