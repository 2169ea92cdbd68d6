//go:build boot

package image

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hinshun/vt10x"

	"saltern/test/lab"
)

// line is a terminal of 80x24 on a machine's serial line.
type line struct {
	conn  net.Conn
	vt    vt10x.Terminal
	ended chan struct{}
}

func dialLine(t testing.TB, socket string) *line {
	t.Helper()
	l := &line{vt: vt10x.New(vt10x.WithSize(80, 24)), ended: make(chan struct{})}
	lab.Eventually(t, time.Minute, "QEMU listens for the serial line", func() (err error) {
		l.conn, err = net.Dial("unix", socket)
		return err
	})

	go func() {
		defer close(l.ended)
		buf := make([]byte, 4096)
		for {
			n, err := l.conn.Read(buf)
			_, _ = l.vt.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()

	return l
}

func (l *line) close() {
	_ = l.conn.Close()
	<-l.ended
}

// Screen is what is to be seen.
func (l *line) Screen() string { return text(l.vt) }

// Type types text.
func (l *line) Type(t testing.TB, text string) {
	t.Helper()
	if _, err := l.conn.Write([]byte(text)); err != nil {
		t.Fatalf("serial line: %v", err)
	}
}

// screen is a machine's VGA screen in text mode, and its keyboard.
type screen struct{ v *vm }

// monitor has QEMU do something.
func (s screen) monitor(command string) error {
	c, err := net.Dial("unix", s.v.dir+"/monitor.sock")
	if err != nil {
		return err
	}
	defer c.Close()

	_ = c.SetDeadline(time.Now().Add(lab.Limit(30 * time.Second)))
	r := bufio.NewReader(c)
	prompt := func() error {
		for seen := ""; !strings.HasSuffix(seen, "(qemu) "); {
			b, err := r.ReadByte()
			if err != nil {
				return err
			}
			seen += string(b)
		}

		return nil
	}

	if err := prompt(); err != nil {
		return err
	}

	if _, err := fmt.Fprintf(c, "%s\n", command); err != nil {
		return err
	}

	return prompt()
}

// Screen is what is in the memory of the card, 80 columns a line; it may hold
// what was to be seen before.
func (s screen) Screen() string {
	path := filepath.Join(s.v.dir, "vga")
	if err := s.monitor("pmemsave 0xb8000 0x8000 \"" + path + "\""); err != nil {
		return err.Error()
	}

	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}

	var out strings.Builder
	for i := 0; i+160 <= len(b); i += 160 {
		var text strings.Builder
		for j := 0; j < 160; j += 2 {
			if c := b[i+j]; c >= ' ' && c < 0x7f {
				text.WriteByte(c)
			} else {
				text.WriteByte(' ')
			}
		}

		out.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}

	return out.String()
}

// keys are QEMU's names of those that are not letters or digits.
var keys = map[rune]string{
	'\r':   "ret",
	' ':    "spc",
	'-':    "minus",
	'.':    "dot",
	'/':    "slash",
	'+':    "shift-equal",
	'=':    "equal",
	'@':    "shift-2",
	'\x15': "ctrl-u",
	'\t':   "tab",
}

// Type presses keys.
func (s screen) Type(t testing.TB, text string) {
	t.Helper()
	for _, r := range text {
		name := keys[r]
		switch {
		case name != "":
		case r >= 'A' && r <= 'Z':
			name = "shift-" + strings.ToLower(string(r))
		default:
			name = string(r)
		}

		if err := s.monitor("sendkey " + name + " 30"); err != nil {
			t.Fatalf("key %s: %v", name, err)
		}
	}
}

// shoot keeps a picture of the screen in the folder SALTERN_SHOTS, if that is
// wanted.
func (s screen) shoot(t testing.TB, name string) {
	t.Helper()
	dir := os.Getenv("SALTERN_SHOTS")
	if dir == "" {
		return
	}
	time.Sleep(time.Second) // the page is drawn; the rest of it too
	if err := s.monitor("screendump " + filepath.Join(dir, name+".png") + " -f png"); err != nil {
		t.Errorf("screendump: %v", err)
	}
}
