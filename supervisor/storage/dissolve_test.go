package storage

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// TestDissolutionKnowsOutsiders: what glusterd has for others is told from what
// is the cluster's, and stands in the way of a volume that lives here and
// elsewhere only.
func TestDissolutionKnowsOutsiders(t *testing.T) {
	s := settings.Default("n1")
	table := nodes.Table{Nodes: []nodes.Node{{Name: "n1", Address: "10.0.0.1"}, {Name: "n2", Address: "10.0.0.2"}}}
	for name, tt := range map[string]struct {
		files  map[string]string
		others []string
		fault  string
	}{
		"nothing yet": {nil, nil, ""},
		"the cluster alone": {map[string]string{
			"vols/cluster/info": "type=2\nbrick-0=n1:-data-cluster-1\nbrick-1=n2:-data-cluster-1\n",
			"peers/u2":          "uuid=u2\nstate=3\nhostname1=n2\nhostname2=10.0.0.2\n"}, nil, ""},
		"a volume of others": {map[string]string{
			"vols/cluster/info": "brick-0=n1:-data-cluster-1\n", "vols/home/info": "brick-0=n1:-home\n"}, []string{"volume home"}, ""},
		"a machine of others": {map[string]string{
			"vols/cluster/info": "brick-0=n1:-data-cluster-1\n", "peers/u9": "uuid=u9\nstate=3\nhostname1=files\n"}, []string{"machine files"}, ""},
		"a volume of others, and copies elsewhere": {map[string]string{
			"vols/cluster/info": "brick-0=n1:-data-cluster-1\nbrick-1=n2:-data-cluster-1\n", "vols/home/info": "brick-0=n1:-home\n"}, []string{"volume home"}, "applianced leave"},
		"a volume of others, after leaving": {map[string]string{
			"vols/cluster/info": "brick-0=n2:-data-cluster-1\n", "vols/home/info": "brick-0=n1:-home\n"}, []string{"volume home"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDissolution(&s, "applianced", table, slog.New(slog.DiscardHandler))
			d.state = t.TempDir()
			for path, text := range tt.files {
				path = filepath.Join(d.state, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			others, err := d.outsiders()
			if err != nil || !slices.Equal(others, tt.others) {
				t.Errorf("%q %v", others, err)
			}

			if err := d.Fault(); (err == nil) != (tt.fault == "") ||
				err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%v", err)
			}
		})
	}
}
