package entry

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// TestParse (F3): each form that Salt takes, and what is none is named while the others run.
func TestParse(t *testing.T) {
	option, err := saltyaml.Decode([]byte("[webhook, {script: {cmd: 'a b', saltern_each_node: true}}, {second: {engine_module: script, cmd: c}}, thorium: , 7, {a: 1, b: 2}, {c: [x]}, '']"),
		"engines")
	if err != nil {
		t.Fatal(err)
	}

	entries, faults := Parse(option)
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.Name, e.Module, e.EachNode, value.Repr(e.Arguments)))
	}

	want := []string{"webhookwebhookfalse{}", "scriptscripttrue{'cmd': 'a b'}",
		"secondscriptfalse{'cmd': 'c'}", "thoriumthoriumfalse{}"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if len(faults) != 4 || !strings.Contains(faults[0].Error(), "entry 5 does not run") {
		t.Errorf("what is said of entries that are none: %v", faults)
	}

	entries, _ = Parse([]any{"script", "script"})
	if len(entries) != 2 || entries[0].Name != "script" || entries[1].Name != "script 2" ||
		entries[1].Module != "script" {
		t.Errorf("of two with one name: %v", entries)
	}

	option, err = saltyaml.Decode([]byte("{webhook: {port: 5000}, thorium: }"), "engines")
	if err != nil {
		t.Fatal(err)
	}

	entries, faults = Parse(option)
	if len(entries) != 2 || entries[0].Name != "webhook" || entries[0].Arguments.Len() != 1 ||
		entries[1].Name != "thorium" || faults != nil {
		t.Errorf("of a map: %v, %v", entries, faults)
	}
}
