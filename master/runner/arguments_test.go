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
		"runner client":  m("fun", "test.arg", "kwarg", m("arg", []any{"foo"}, "kwarg", m("bar", false))),
		"map at the end": m("fun", "test.arg", "arg", []any{"foo", m("__kwarg__", true, "bar", false)}),
		"arg and kwarg":  m("fun", "test.arg", "arg", []any{"foo"}, "kwarg", m("bar", false)),
		"at the top": m("fun", "test.arg", "arg", []any{"foo"}, "bar", false, "token", "x", "eauth",
			"pam", "__jid__", "1"),
		"map inside kwarg": m("fun", "test.arg", "kwarg",
			m("arg", []any{"foo", m("__kwarg__", true, "bar", false)}, "kwarg", m())),
		"envelope in front": m("cmd", "runner", "fun", "test.arg", "key", "k", "user", "root", "kwarg",
			m("arg", []any{"foo"}, "kwarg", m("bar", false))),
	} {
		args, named := LowArguments(load)
		if got := fmt.Sprint(args, plainMap(named)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestArgumentsKeepTheirNames (M2): every name that a function may use for an argument reaches the
// function from every place in a load. At the top of the load, the fields with the caller's
// identity and those for the client are not arguments.
func TestArgumentsKeepTheirNames(t *testing.T) {
	names := []string{"id", "timeout", "ts", "tgt", "tgt_type", "ret", "name", "match", "jid", "tag", "data",
		"nonce", "tok", "load", "é"}
	below := append([]string{"user", "key", "username", "client", "cmd", "eauth", "full_return", "print_event"},
		names...)
	for _, c := range []struct {
		place string
		names []string
		load  func(named *value.Map) *value.Map
	}{
		{"top", names, func(named *value.Map) *value.Map {
			load := value.NewMap("cmd", "wheel", "fun", "a.b", "user", "root", "key", "k", "print_event",
				false, "full_return", true)
			load.Update(named)
			return load
		}},
		{"kwarg", below, func(named *value.Map) *value.Map { return value.NewMap("fun", "a.b", "kwarg", named) }},
		{"kwarg in kwarg", below, func(named *value.Map) *value.Map {
			return value.NewMap("fun", "a.b", "kwarg", value.NewMap("arg", []any{}, "kwarg", named))
		}},
		{"end of arg", below, func(named *value.Map) *value.Map {
			named = named.Clone()
			named.Set("__kwarg__", true)
			return value.NewMap("fun", "a.b", "arg", []any{named})
		}},
	} {
		t.Run(c.place, func(t *testing.T) {
			want := value.NewMap()
			for i, name := range c.names {
				want.Set(name, int64(i))
			}

			args, got := LowArguments(c.load(want))
			if len(args) != 0 || !maps.Equal(plainMap(got), plainMap(want)) {
				t.Errorf("%v, %v, want %v", args, plainMap(got), plainMap(want))
			}
		})
	}
}

// plainMap is a map that fmt prints by its values.
func plainMap(m *value.Map) map[any]any { return maps.Collect(m.All()) }
