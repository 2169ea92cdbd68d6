package main

import "testing"

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
