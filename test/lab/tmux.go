package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Screen is a terminal with a program on it, and somebody who types.
type Screen interface {
	// Screen is what is to be seen.
	Screen() string
	// WaitFor waits until all texts are to be seen.
	WaitFor(t testing.TB, limit time.Duration, texts ...string)
	// Type types text; "\r" is the enter key, "\x15" clears a field, "\x1b[B"
	// is the arrow down, "\x03" is Ctrl-C.
	Type(t testing.TB, text string)
	// WaitEnd waits for the end of the program and gives its exit code.
	WaitEnd(t testing.TB, limit time.Duration) int
}

// Tmux is a [Screen] in tmux: a terminal that people use, with its own idea of
// what keys send and what output means.
type Tmux struct {
	name, socket string
	exit         string // file with the exit code
}

// Tmux starts an interactive verb of applianced on the node in a tmux of its
// own, 80x24. It ends with the test.
func (a *Appliance) Tmux(t testing.TB, args ...string) *Tmux {
	t.Helper()
	program, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("NOT TESTED: tmux is not installed")
	}

	path, args := a.net.wrap(a.Addr, a.bin(t, "applianced"),
		append([]string{"--config", a.Config(), "--socket", a.Dir + "/run/applianced.sock"}, args...))
	dir := Dir(t)
	x := &Tmux{name: a.Name, socket: filepath.Join(dir, "tmux"), exit: filepath.Join(dir, "exit")}

	// tmux 3.3a tells the exit code of a pane most times, not always; a shell does.
	command := append([]string{"-S", x.socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y",
		"24", "-s", "s",
		"sh", "-c", `"$@"; echo $? > "$0"`, x.exit, path}, args...)
	command = append(command, ";", "set", "-g", "status", "off", ";", "set", "-g", "remain-on-exit", "on",
		";", "set", "-g", "default-terminal", "tmux")
	cmd := exec.Command(program, command...)
	cmd.Env = append(cleanEnv(), "TERM=vt220", "LC_ALL=C.UTF-8")

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("tmux on %s shows:\n%s", x.name, x.Screen())
		}
		_, _ = x.do("kill-server") // it may have ended
	})

	return x
}

func (x *Tmux) do(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Screen implements [Screen].
func (x *Tmux) Screen() string {
	out, err := x.do("capture-pane", "-p", "-t", "s")
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(out, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// WaitFor implements [Screen].
func (x *Tmux) WaitFor(t testing.TB, limit time.Duration, texts ...string) {
	t.Helper()
	Eventually(t, limit, "tmux on "+x.name, func() error { return shows(x.Screen(), texts) })
}

// Type implements [Screen].
func (x *Tmux) Type(t testing.TB, text string) {
	t.Helper()
	send := func(args ...string) {
		t.Helper()
		if _, err := x.do(append([]string{"send-keys", "-t", "s"}, args...)...); err != nil {
			t.Fatalf("type on %s: %v", x.name, err)
		}
	}

	keys := map[string]string{
		"\r":     "Enter",
		"\x15":   "C-u",
		"\x03":   "C-c",
		"\x1b[B": "Down",
		"\x1b[A": "Up",
		"\x1b":   "Escape",
	}

	for text != "" {
		key := ""
		for k := range keys {
			if strings.HasPrefix(text, k) && len(k) > len(key) {
				key = k
			}
		}

		if key != "" {
			send(keys[key])
			text = text[len(key):]
			continue
		}

		n := strings.IndexAny(text, "\r\x15\x03\x1b")
		if n < 0 {
			n = len(text)
		}

		send("-l", "--", text[:n])
		text = text[n:]
	}
}

// WaitEnd implements [Screen].
func (x *Tmux) WaitEnd(t testing.TB, limit time.Duration) int {
	t.Helper()
	code := -1
	Eventually(t, limit, "the program in tmux on "+x.name+" has ended", func() error {
		out, err := os.ReadFile(x.exit)
		if err != nil {
			return fmt.Errorf("it runs:\n%s", x.Screen())
		}
		code, err = strconv.Atoi(strings.TrimSpace(string(out)))
		return err
	})
	return code
}

// shows tells which of the texts is not on a screen; they may go over lines.
func shows(screen string, texts []string) error {
	flat := strings.Join(strings.Fields(screen), " ")
	for _, text := range texts {
		if !strings.Contains(screen, text) && !strings.Contains(flat, text) {
			return fmt.Errorf("%q is not to be seen:\n%s", text, screen)
		}
	}
	return nil
}
