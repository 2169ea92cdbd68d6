package screen

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tmux is a server of tmux with one session of one pane, called s, and a client in its
// control mode: to ask it what is to be seen costs no process.
type tmux struct {
	socket  string
	client  *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Reader
}

func startTmux(t testing.TB, width, height int) *tmux {
	t.Helper()
	x := &tmux{socket: filepath.Join(t.TempDir(), "tmux")}
	start := x.command("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "-s", "s", "exec sleep 3600",
		";", "set", "-g", "status", "off", ";", "set", "-g", "window-size", "manual")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}

	x.client = x.command("-C", "attach-session", "-t", "s", "-f", "no-output,ignore-size")
	var err error
	if x.ask, err = x.client.StdinPipe(); err != nil {
		t.Fatal(err)
	}

	answers, err := x.client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	x.answers = bufio.NewReader(answers)
	if err := x.client.Start(); err != nil {
		t.Fatal(err)
	}

	x.answer(t) // to attach-session
	return x
}

func (x *tmux) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8")
	return cmd
}

// do runs a command of tmux and gives what it prints.
func (x *tmux) do(t testing.TB, words ...string) string {
	t.Helper()
	for i, w := range words {
		words[i] = "'" + w + "'"
	}
	if _, err := fmt.Fprintln(x.ask, strings.Join(words, " ")); err != nil {
		t.Fatalf("tmux: %v", err)
	}
	return x.answer(t)
}

// answer reads one answer: the lines between %begin and %end, or %error. Between
// answers tmux tells what happens (tmux(1), control mode).
func (x *tmux) answer(t testing.TB) string {
	t.Helper()
	var lines []string
	within := false
	for {
		line, err := x.answers.ReadString('\n')
		if err != nil {
			t.Fatalf("tmux: %v", err)
		}

		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "%begin "):
			within = true
		case within && strings.HasPrefix(line, "%end "):
			return strings.Join(lines, "\n")
		case within && strings.HasPrefix(line, "%error "):
			t.Fatalf("tmux: %s", strings.Join(lines, "; "))
		case within:
			lines = append(lines, line)
		}
	}
}

// end ends the server, and waits for the client.
func (x *tmux) end() {
	_ = x.command("kill-server").Run()
	_ = x.ask.Close()
	_ = x.client.Wait()
}
