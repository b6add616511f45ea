//! A TCP connection without an event loop: the only descriptor that an idle exporter keeps. tokio's own event loop has three
//! more; when the program closes them it panics, and wakes by writing into whatever file has their number since. Here a thread
//! for each connection connects, then sleeps in `poll` until there is something to read; a write that the kernel cannot take
//! is repeated after a pause. Called by the connector.

use crate::blocking::{Pending, THREAD_NAME};
use crate::owned::Owned;
use crate::settings::StartThread;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{ready, Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// How long one `poll` lasts: whether the descriptor is still ours is checked between two of them.
const LONGEST_POLL: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Pauses before a write is repeated: the first, and the longest of those that double.
const SHORTEST_STALL: Duration = Duration::from_millis(1);
const LONGEST_STALL: Duration = Duration::from_millis(32);

/// See the head of the module.
pub(crate) struct Socket {
    shared: Arc<Shared>,
    stall: Option<Pin<Box<Sleep>>>,
    next_stall: Duration,
}

struct Shared {
    stream: Owned<TcpStream>,
    reader: Mutex<Reader>,
    changed: Condvar,
}

/// Who waits for bytes.
#[derive(Default)]
struct Reader {
    waker: Option<Waker>,
    is_gone: bool,
}

impl Socket {
    /// Begins to connect. Nobody has to wait for the outcome.
    pub fn connect(
        start_thread: StartThread,
        address: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Pending<io::Result<Self>>> {
        let (sender, pending) = oneshot::channel();
        let body = move || match Shared::connect(address, timeout).map(Arc::new) {
            Ok(shared) => {
                let socket = Self { shared: shared.clone(), stall: None, next_stall: SHORTEST_STALL };
                // Sent in vain it is dropped, which ends the loop below.
                drop(sender.send(Ok(socket)));
                shared.wake_reader_until_gone();
            }
            Err(error) => drop(sender.send(Err(error))),
        };
        start_thread(THREAD_NAME, Box::new(body))?;
        Ok(pending)
    }

    fn poll_stall(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(stall) = &mut self.stall {
            ready!(stall.as_mut().poll(context));
            self.stall = None;
        }
        Poll::Ready(())
    }
}

impl Shared {
    fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        // Only delays small packets; a connection without it works as well.
        let _ = stream.set_nodelay(true);
        stream.set_nonblocking(true)?;
        Ok(Self { stream: Owned::new(stream)?, reader: Mutex::default(), changed: Condvar::new() })
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_reader_until_gone(&self) {
        loop {
            let waits = |reader: &mut Reader| reader.waker.is_none() && !reader.is_gone;
            if self.changed.wait_while(self.reader(), waits).unwrap_or_else(PoisonError::into_inner).is_gone {
                return;
            }
            let is_over = match self.stream.get() {
                Ok(stream) => {
                    let outcome = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&LONGEST_POLL));
                    !matches!(outcome, Ok(0) | Err(Errno::INTR))
                }
                // The reader finds out.
                Err(_) => true,
            };
            if is_over {
                let waker = self.reader().waker.take();
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.reader().is_gone = true;
        self.shared.changed.notify_one();
        if let Ok(stream) = self.shared.stream.get() {
            // Ends the thread's `poll`.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let shared = &self.shared;
        // Before the attempt: bytes that come after it wake whoever is noted here.
        let mut reader = shared.reader();
        loop {
            match shared.stream.get()?.read(into.initialize_unfilled()) {
                Ok(length) => {
                    reader.waker = None;
                    into.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    reader.waker = Some(context.waker().clone());
                    shared.changed.notify_one();
                    return Poll::Pending;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// One buffer at a time: such writes ask the kernel for no SIGPIPE (MSG_NOSIGNAL); gathered writes cannot, and SIGPIPE would
/// end a host that has it at its default.
impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_stall(context));
            match self.shared.stream.get()?.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let pause = self.next_stall;
                    self.next_stall = (pause * 2).min(LONGEST_STALL);
                    self.stall = Some(Box::pin(tokio::time::sleep(pause)));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => {
                    self.next_stall = SHORTEST_STALL;
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shared.stream.get().and_then(|stream| stream.shutdown(Shutdown::Write)))
    }
}

#[cfg(test)]
mod tests {
    use super::Socket;
    use crate::settings::ExporterSettings;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

    fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
        // As the exporter's: without descriptors.
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let start_thread = ExporterSettings::default().start_thread;
        let timeout = Duration::from_secs(10);
        let socket = Socket::connect(start_thread, listener.local_addr().unwrap(), timeout).unwrap().await.unwrap();
        (socket.unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_never_gathers_writes_since_those_could_raise_a_signal() {
        assert!(!block_on(pair()).0.is_write_vectored());
    }

    #[test]
    fn more_than_the_kernel_takes_at_once_arrives_in_both_directions() {
        const BYTES: usize = 16 << 20;
        block_on(async {
            let (mut ours, mut theirs) = pair().await;
            let echo = std::thread::spawn(move || {
                let mut bytes = vec![0; BYTES];
                std::thread::sleep(Duration::from_millis(20));
                theirs.read_exact(&mut bytes).unwrap();
                theirs.write_all(&bytes).unwrap();
            });
            let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            ours.write_all(&sent).await.unwrap();
            let mut back = Vec::new();
            ours.read_to_end(&mut back).await.unwrap();
            assert!(back == sent);
            echo.join().unwrap();
        });
    }

    #[test]
    fn the_other_side_sees_the_end_when_the_connection_is_dropped() {
        let (ours, mut theirs) = block_on(pair());
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        drop(ours);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn an_address_where_nobody_listens_is_an_error() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let connecting = Socket::connect(ExporterSettings::default().start_thread, address, Duration::from_secs(10));
        assert!(block_on(connecting.unwrap()).unwrap().is_err());
    }
}
