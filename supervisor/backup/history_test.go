package backup

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/check"
)

// TestHistoryOnly: the history of a backup comes to a node that has minions and a history of its own, whose
// files stay. Nothing else of the backup does.
func TestHistoryOnly(t *testing.T) {
	source := full(t)
	r, i := passphrase(t, "correct horse")
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, options(source, true), r)
	check.Must(t, err)

	for _, cluster := range []bool{false, true} {
		to := node(t)
		to.Peering.Enabled = cluster
		write(t, filepath.Join(to.SharedPKIDir(), "minions", "web9"), "key of web9", 0o644)
		write(t, filepath.Join(to.CacheDir(), "history", "0000000000000001.seg"), "runs of this node", 0o600)
		write(t, filepath.Join(to.CacheDir(), "history", "last-runs"), "table of this node", 0o600)
		want := contents(t, to)
		for name, text := range map[string]string{"0000000000000001.seg": "runs", "last-runs": "table"} {
			want["cache/history/restored-one-"+name] = "-rw------- " + text
		}

		_, _, err := Restore(t.Context(), bytes.NewReader(archive.Bytes()),
			Target{Settings: to, Stamp: "one", HistoryOnly: true}, i)
		check.Must(t, err)
		if got := contents(t, to); !maps.Equal(got, want) {
			t.Errorf("in a cluster: %v: got\n%v\nwant\n%v", cluster, got, want)
		}
	}
}

func TestHistoryOnlyOfABackupWithoutIt(t *testing.T) {
	r, i := passphrase(t, "correct horse")
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, options(full(t), false), r)
	check.Must(t, err)
	_, _, err = Restore(t.Context(), &archive, Target{Settings: node(t), Stamp: "one", HistoryOnly: true}, i)
	if !errors.Is(err, errNoHistory) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Error(err)
	}
}
