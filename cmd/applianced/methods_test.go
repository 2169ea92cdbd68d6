package main

import (
	"strings"
	"testing"

	"saltern/supervisor/api"
)

// TestCommandsOfMethods: what a method of the local API says that a user types exists.
func TestCommandsOfMethods(t *testing.T) {
	root := rootCommand()
	for _, row := range api.Table.Rows() {
		if row.Command == "" {
			continue
		}

		words := strings.Fields(row.Command)[1:]
		command, rest, err := root.Find(words)
		if err != nil || len(rest) > 0 || command == root {
			t.Errorf("%s: %q leads to %q %v, %v", row.Route, row.Command, command.Name(), rest, err)
		}
	}
}
