package extpillar

import (
	"testing"

	"saltern/master/value"
)

// TestParse: an entry with arguments of which Go does not know what they do is left to Salt.
func TestParse(t *testing.T) {
	m := value.NewMap
	for _, tt := range []struct {
		name string
		args any
		want bool
	}{
		{"cmd_yaml", "x", true},
		{"cmd_yaml", []any{"x"}, true},
		{"cmd_json", m("command", "x"), true},
		{"cmd_yaml", "", false},
		{"cmd_yaml", nil, false},
		{"cmd_yaml", int64(1), false},
		{"cmd_yaml", []any{"x", "y"}, false},
		{"cmd_json", m("command", "x", "y", 1), false},
		{"cmd_json", m("cmd", "x"), false},
		{"cmd_yamlex", "x", false},
		{"stack", "/srv/stack.cfg", false},
		{"nodegroups", nil, true},
		{"nodegroups", "x", true},
		{"nodegroups", m("pillar_name", "x"), true},
		{"nodegroups", m("name", "x"), false},
		{"nodegroups", int64(5), false},
		{"file_tree", "/x", true},
		{"file_tree", "x", false},
		{"file_tree", "", false},
		{"file_tree", m("root_dir", "/x", "keep_newline", []any{"a"}, "template", int64(1)), true},
		{"file_tree", m("root_dir", "/x", "template", true), false},
		{"file_tree", m("root_dir", "/x", "raw_data", true), false},
		{"file_tree", m("root_dir", "/x", "keep_newline", "yes"), false},
		{"file_tree", m("root_dir", "/x", "keep_newline", []any{int64(1)}), false},
		{"file_tree", m("root_dir", "/x", "follow_dir_links", int64(1)), false},
		{"file_tree", m("follow_dir_links", true), false},
	} {
		if got := Parse(tt.name, tt.args) != nil; got != tt.want {
			t.Errorf("%s %v: %v", tt.name, tt.args, got)
		}
	}
}
