package runner

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"saltern/master/value"
)

// The forms in which Salt's clients name the arguments of a runner.
func TestRunnerArguments(t *testing.T) {
	m := value.NewMap
	want := fmt.Sprint([]any{"foo"}, plainMap(m("bar", false)))
	for name, load := range map[string]*value.Map{
		"runner client":     m("fun", "test.arg", "kwarg", m("arg", []any{"foo"}, "kwarg", m("bar", false))),
		"map at the end":    m("fun", "test.arg", "arg", []any{"foo", m("__kwarg__", true, "bar", false)}),
		"arg and kwarg":     m("fun", "test.arg", "arg", []any{"foo"}, "kwarg", m("bar", false)),
		"at the top":        m("fun", "test.arg", "arg", []any{"foo"}, "bar", false, "token", "x", "eauth", "pam", "__jid__", "1"),
		"map inside kwarg":  m("fun", "test.arg", "kwarg", m("arg", []any{"foo", m("__kwarg__", true, "bar", false)}, "kwarg", m())),
		"envelope in front": m("cmd", "runner", "fun", "test.arg", "key", "k", "user", "root", "kwarg", m("arg", []any{"foo"}, "kwarg", m("bar", false))),
	} {
		args, named := LowArguments(load)
		if got := fmt.Sprint(args, plainMap(named)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// plainMap is a map that fmt prints by its values.
func plainMap(m *value.Map) map[any]any { return maps.Collect(m.All()) }
