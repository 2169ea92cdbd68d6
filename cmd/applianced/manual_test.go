package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryVerbExplainsItself: each verb that does something has a short text
// and an example, which names a verb that is there, and is listed once.
func TestEveryVerbExplainsItself(t *testing.T) {
	n := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		names := map[string]bool{}
		for _, sub := range c.Commands() {
			if names[sub.Name()] {
				t.Errorf("%s is listed twice", sub.CommandPath())
			}
			names[sub.Name()] = true
			walk(sub)
		}

		if c.Short == "" {
			t.Errorf("%s has no short text", c.CommandPath())
		}

		if strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short text ends with a full stop", c.CommandPath())
		}

		if !c.Runnable() || c.Hidden {
			return
		}

		n++
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example of its own: %q", c.CommandPath(), c.Example)
		}

		for line := range strings.Lines(c.Example) {
			for _, part := range strings.Split(line, "applianced ")[1:] { // before it may stand sudo
				words := strings.Fields(part)
				if len(words) == 0 || strings.HasPrefix(words[0], "-") {
					continue
				}
				if found, _, err := c.Root().Find(words[:1]); err != nil || found == c.Root() {
					t.Errorf("%s: the example %q has a verb that is not there", c.CommandPath(), line)
				}
			}
		}
	}

	walk(rootCommand())
	if n < 12 {
		t.Errorf("only %d verbs", n)
	}
}

// TestManualPages: all pages are written, and say the same each time.
func TestManualPages(t *testing.T) {
	run := func(args ...string) string {
		root := rootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(args)

		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}

		return out.String()
	}

	page := run("man")
	for _, want := range []string{".TH \"APPLIANCED\" \"8\"", "applianced-status(8)", "--socket"} {
		if !strings.Contains(strings.ReplaceAll(page, `\-`, "-"), want) {
			t.Errorf("%s is not in the page:\n%.2000s", want, page)
		}
	}

	dir := t.TempDir()
	run("man", "--dir", dir)
	for _, name := range []string{"applianced.8", "applianced-status.8", "applianced-lb-drain.8",
		"applianced-backup.8", "applianced-minions.8", "applianced-keys-accept.8",
		"applianced-secret-rotate.8", "applianced-recover.8"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}

	if again := run("man"); again != page {
		t.Error("the page differs the second time")
	}

	for _, shell := range []string{"bash", "zsh", "fish"} {
		if !strings.Contains(run("completion", shell), "applianced") {
			t.Errorf("no completion for %s", shell)
		}
	}
}
