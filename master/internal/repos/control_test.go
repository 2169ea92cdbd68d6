package repos

import "testing"

// Remotes are found by what people and git servers call them.
func TestSameRemote(t *testing.T) {
	for _, c := range []struct {
		shown, called string
		want          bool
	}{
		{"https://git.example.com/ops/states.git", "https://git.example.com/ops/states.git", true},
		{"https://git.example.com/ops/states.git", "https://git.example.com/ops/states", true},
		{"https://git.example.com/ops/states.git", "https://user@git.example.com:443/ops/states.git", true},
		{"git@git.example.com:ops/states.git", "ssh://git@git.example.com/ops/states.git", true},
		{"git@git.example.com:ops/states.git", "https://git.example.com/ops/states", true},
		{"git@git.example.com:ops/states.git", "states", true},
		{"git@git.example.com:ops/states.git", "states.git", true},
		{"/srv/git/states.git", "file:///srv/git/states.git", true},
		{"/srv/git/states.git", "states", true},
		{"https://git.example.com/ops/states.git", "https://git.example.com/other/states.git", false},
		{"https://git.example.com/ops/states.git", "https://other.example.com/ops/states.git", false},
		{"https://git.example.com/ops/states.git", "ops", false},
		{"https://git.example.com/ops/states.git", "", false},
		{"/srv/git/states.git", "/srv/git/state", false},
		{"git@h:x", "y@h:z", false},
	} {
		if got := sameRemote(c.shown, c.called); got != c.want {
			t.Errorf("%s and %s: %v", c.shown, c.called, got)
		}
	}
}
