package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/spf13/cobra"

	"saltern/supervisor/status"
)

// TestConfirm: what takes something away asks on a terminal, and refuses without
// one.
func TestConfirm(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()

	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()

	defer tty.Close()
	for _, c := range []struct {
		name   string
		in     *os.File
		typed  string
		yes    bool
		usage  bool
		failed bool
	}{
		{"no terminal", null, "", false, true, true},
		{"no terminal, --yes", null, "", true, false, false},
		{"the word", tty, "sca-1\n", false, false, false},
		{"another word", tty, "yes\n", false, false, true},
		{"just Enter", tty, "\n", false, false, true},
	} {
		cmd := &cobra.Command{Use: "leave"}
		var asked bytes.Buffer
		cmd.SetErr(&asked)
		cmd.SetIn(c.in)

		if _, err := master.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}

		err := confirm(cmd, c.yes, "sca-1 will leave.", "sca-1")
		var usage *usageError
		if (err != nil) != c.failed || errors.As(err, &usage) != c.usage {
			t.Errorf("%s: %v", c.name, err)
		}

		if c.in == tty && !strings.Contains(asked.String(), "sca-1 will leave.\nType sca-1 to go on: ") {
			t.Errorf("%s: asked %q", c.name, asked.String())
		}

		if err != nil && !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestVerbsThatTakeAway: each of them stops before it asks the supervisor.
func TestVerbsThatTakeAway(t *testing.T) {
	for _, args := range [][]string{{"remove", "n2"}, {"replace", "n2"}, {"keys", "delete", "m1"}} {
		cmd := rootCommand()
		cmd.SetArgs(append([]string{"--socket", filepath.Join(t.TempDir(), "none")}, args...))
		cmd.SetIn(strings.NewReader(""))
		cmd.SetErr(&bytes.Buffer{})
		var usage *usageError
		if err := cmd.ExecuteContext(t.Context()); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--yes") {
			t.Errorf("%v: %v", args, err)
		}
	}

	three := 3
	d := status.Document{Node: "n1", Cluster: "blue", Nodes: []status.Node{{Name: "n1", Minions: &three}, {Name: "n2"}}}
	if got := leaveEffect(d); !strings.Contains(got, "Its 3 minions move") || !strings.Contains(got, "no second copy") {
		t.Error(got)
	}
}
