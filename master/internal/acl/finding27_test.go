package acl

import (
	"testing"

	"saltern/master/value"
)

// TestFinding27Arguments: a condition is not met by an argument that the
// minion takes for another one.
func TestFinding27Arguments(t *testing.T) {
	perms := []any{value.NewMap("*",
		[]any{value.NewMap("cmd.run", value.NewMap("args", []any{"uptime"}, "kwargs", value.NewMap("cwd", "/tmp$")))})}
	kw := func(pairs ...any) *value.Map { return value.NewMap(append([]any{"__kwarg__", true}, pairs...)...) }
	for _, x := range []struct {
		name string
		args []any
		want bool
	}{
		{"as it should be", []any{"uptime", kw("cwd", "/tmp")}, true}, {"one more", []any{"uptime -p", "x", kw("cwd", "/tmp", "shell", "sh")}, true},
		{"text with an equation", []any{"uptime", "a == b", kw("cwd", "/tmp")}, true}, {"a sentence", []any{"uptime", "x y=z", kw("cwd", "/tmp")}, true},
		{"wrong", []any{"uptime", kw("cwd", "/")}, false}, {"missing", []any{"uptime"}, false},
		{"named as text", []any{"uptime", "cmd=id", kw("cwd", "/tmp")}, false}, {"named as bytes", []any{"uptime", []byte("cmd=id"), kw("cwd", "/tmp")}, false},
		{"empty", []any{"uptime", "cmd=", kw("cwd", "/tmp")}, false}, {"two maps", []any{"uptime", kw("cmd", "id"), kw("cwd", "/tmp")}, false},
		{"letters of others", []any{"uptime", "é=1", kw("cwd", "/tmp")}, false}, {"a figure", []any{"uptime", "²=1", kw("cwd", "/tmp")}, false},
		{"a number", []any{"uptime", "Ⅷ=1", kw("cwd", "/tmp")}, false}, {"a letter of a later Python", []any{"uptime", "\U0001df25=1", kw("cwd", "/tmp")}, false},
		{"a figure inside", []any{"uptime", "x²=1", kw("cwd", "/tmp")}, false}, {"no name", []any{"uptime", "2=1", kw("cwd", "/tmp")}, true},
	} {
		if got := Publish(perms,
			Request{Funs: []string{"cmd.run"}, Args: []any{x.args}, Minions: []string{"web1"}}, nil); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}

	// Without a condition arguments are free.
	if !Publish([]any{"cmd.run"},
		Request{Funs: []string{"cmd.run"}, Args: []any{[]any{"cmd=id"}}, Minions: []string{"web1"}}, nil) {
		t.Error("a permission without conditions is refused")
	}
}
