package main

import (
	"strings"
	"testing"
)

// Every verb is in one group, and every name of a group is a verb: cobra lists
// others under "Additional Commands".
func TestVerbsAreGrouped(t *testing.T) {
	root := rootCommand()
	verbs := map[string]bool{}
	for _, c := range root.Commands() {
		verbs[c.Name()] = true
		if c.GroupID == "" && !c.Hidden {
			t.Errorf("%s is in no group", c.Name())
		}
	}

	seen := map[string]bool{}
	for _, g := range groups() {
		for _, v := range g.verbs {
			if !verbs[v] || seen[v] {
				t.Errorf("%s: %s is no verb, or twice", g.title, v)
			}
			seen[v] = true
		}
	}
}

// TestShortHelp: help fits a screen, and says how all of it is had (m23).
func TestShortHelp(t *testing.T) {
	help := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		root := rootCommand()
		root.SetOut(&out)
		root.SetArgs(args)

		if err := root.Execute(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}

		return out.String()
	}

	for _, args := range [][]string{{"--help"}, {"help"}} {
		text := help(args...)
		if n := strings.Count(text, "\n"); n > 22 || !strings.Contains(text, "help --all") ||
			strings.Contains(text, "virtual-address") {
			t.Errorf("%q: %d lines\n%s", args, n, text)
		}

		for _, verb := range everyday {
			if !strings.Contains(text, "applianced "+verb+" ") {
				t.Errorf("no %s in\n%s", verb, text)
			}
		}

		for line := range strings.Lines(text) {
			if len(line) > 120 {
				t.Errorf("long: %s", line)
			}
		}
	}

	if text := help("help", "--all"); !strings.Contains(text, "virtual-address") ||
		!strings.Contains(text, "See how it is:") {
		t.Errorf("all:\n%s", text)
	}

	if text := help("help", "drain"); !strings.Contains(text, "applianced drain") ||
		strings.Contains(text, "help --all") {
		t.Errorf("one:\n%s", text)
	}
}
