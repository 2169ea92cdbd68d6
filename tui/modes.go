package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// modes holds the modes of a terminal on which a page is drawn. Each key arrives immediately and
// unchanged. For each line feed the kernel writes CR LF: the drawing library expects that unless it
// reads the keys itself. With LF alone, the result would depend on the terminal: if a serial line
// is shown by another terminal, as with qemu -nographic, that terminal adds a CR.
type modes struct {
	mu     sync.Mutex
	in     *os.File
	out    *os.File
	before unix.Termios // modes of in before holdModes
	// beforeOut holds the earlier modes of out.
	beforeOut unix.Termios
}

// holdModes sets the modes of a terminal whose keys come from in, and to which out writes.
func holdModes(in, out *os.File) (*modes, error) {
	m := &modes{in: in, out: out}
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("modes of the terminal: %w", err)
	}
	beforeOut, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("modes of the terminal: %w", err)
	}
	m.before, m.beforeOut = *before, *beforeOut
	return m, m.putInForce()
}

// putInForce sets the modes of both files.
func (m *modes) putInForce() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.beforeOut
	setOutputModes(&out)
	in := m.before
	setOutputModes(&in) // in and out are usually the same terminal
	in.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	in.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	in.Cc[unix.VMIN], in.Cc[unix.VTIME] = 1, 0
	err := errors.Join(unix.IoctlSetTermios(int(m.out.Fd()), unix.TCSETS, &out),
		unix.IoctlSetTermios(int(m.in.Fd()), unix.TCSETS, &in))
	if err != nil {
		return fmt.Errorf("modes of the terminal: %w", err)
	}

	return nil
}

// setOutputModes changes the output modes in t.
func setOutputModes(t *unix.Termios) {
	t.Oflag &^= unix.OLCUC | unix.OCRNL | unix.ONOCR | unix.ONLRET
	t.Oflag |= unix.OPOST | unix.ONLCR
}

// restore sets the modes that the terminal had before holdModes. It ignores errors, because the
// terminal may be closed.
func (m *modes) restore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = unix.IoctlSetTermios(int(m.out.Fd()), unix.TCSETS, &m.beforeOut)
	_ = unix.IoctlSetTermios(int(m.in.Fd()), unix.TCSETS, &m.before)
}

// afterStop sets the modes again and calls repaint whenever the process continues after a stop,
// because a shell has used the terminal during the stop. It returns when ctx ends.
func (m *modes) afterStop(ctx context.Context, repaint func()) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	for {
		select {
		case <-ctx.Done():
			return
		case <-continued:
			_ = m.putInForce() // if the terminal is closed, the program ends anyway
			repaint()
		}
	}
}
