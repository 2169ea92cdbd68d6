package salttools

import (
	"errors"
	"strings"
	"testing"

	"saltern/supervisor/api"
)

// TestFetchAll: a fetch for a remote that no node has is refused, and names it.
func TestFetchAll(t *testing.T) {
	nobody := Cluster{Node: "n3", Masterless: true}
	for remote, want := range map[string]string{
		"":                    "no git remote is configured",
		"https://git.x/a.git": "https://git.x/a.git",
	} {
		err := nobody.FetchAll(t.Context(), remote)
		if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", remote, err)
		}
	}
}
