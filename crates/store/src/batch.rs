//! Many requests at once, answered in order.

use std::future::Future;
use std::ops::ControlFlow;

use futures_util::stream::{self, BoxStream, StreamExt};

use crate::{Found, Trouble};

/// Runs `requests`, `at_a_time` of them at once. Boxed, because the compiler loses sight of `Send`
/// behind the types of iterators that borrow.
pub(crate) fn in_order<'a, F>(
    requests: impl Iterator<Item = F> + Send + 'a,
    at_a_time: usize,
) -> BoxStream<'a, F::Output>
where
    F: Future<Output: Send> + Send + 'a,
{
    stream::iter(requests).buffered(at_a_time).boxed()
}

/// Tells what was found, until told to stop.
pub(crate) async fn tell_all(
    mut found: BoxStream<'_, Result<Found, Trouble>>,
    mut tell: impl FnMut(usize, Found) -> ControlFlow<()>,
) -> Result<(), Trouble> {
    let mut index = 0;
    while let Some(found) = found.next().await {
        if tell(index, found?).is_break() {
            break;
        }
        index += 1;
    }
    Ok(())
}
