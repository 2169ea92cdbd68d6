package main

import (
	"testing"

	"saltern/master/client"
	"saltern/master/value"
)

// TestFieldsStayText: what salt-run passes to a saved job is the text as typed, but for the arguments of
// saved.run itself.
func TestFieldsStayText(t *testing.T) {
	words := []string{"deploy", "version=1.10", "serial=007", "test=True", "revision=7", "fields={a: 1}"}
	noParse := map[string]bool{}
	keepFields(words, noParse)

	_, named := splitKwargs(client.ParseArgs(words, noParse))
	want := value.NewMap("version", "1.10", "serial", "007", "test", true, "revision", int64(7), "fields", value.NewMap("a", int64(1)))
	if !value.Equal(named, want) {
		t.Errorf("%s, want %s", value.Repr(named), value.Repr(want))
	}
}
