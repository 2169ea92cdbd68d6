package supervisor

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// newMemberRun is a node that the table on its disk has as n1 of the cluster lab.
func newMemberRun(t *testing.T) (*run, map[string]any) {
	t.Helper()
	r, conf := newRun(t)
	address := conf["master"].(map[string]any)["address"].(string)
	conf["cluster"] = "lab"
	conf["peering"] = map[string]any{"enabled": true, "address": address, "node_port": 24521, "pool_port": 24520}
	r.write(conf)
	cfg, err := settings.Load(r.path, "host")
	if err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(cfg.NodeDir(), 0o700); err != nil {
		t.Fatal(err)
	}

	id, err := nodeapi.LoadIdentity(cfg.NodeDir())
	if err != nil {
		t.Fatal(err)
	}

	k, err := nodes.OpenKeeper(cfg.DataDir, "")
	if err != nil {
		t.Fatal(err)
	}

	self := nodes.Node{Name: "n1", Address: address, State: nodes.Member, Certificate: id.Hash, Storage: "client"}
	if _, err := k.Offer(nodes.Table{
		Version: 1,
		Cluster: "lab",
		KeyHash: strings.Repeat("ab", 32),
		Nodes:   []nodes.Node{self},
	}); err != nil {
		t.Fatal(err)
	}

	return r, conf
}

// TestNodeIsNamedByTheTable: another name of the node or of its cluster in appliance.yaml is
// refused by a reload, and by who gives the node the file; after a start the node is the one
// of the table all the same, once, and says what of the file it does not follow (F9).
func TestNodeIsNamedByTheTable(t *testing.T) {
	for key, value := range map[string]string{"node": "salt-three", "cluster": "other"} {
		t.Run(key, func(t *testing.T) {
			r, conf := newMemberRun(t)
			r.start()
			one := func(d status.Document) bool {
				return len(d.Nodes) == 1 && d.Nodes[0].Name == "n1" && d.Cluster == "lab"
			}
			r.until("is n1", one)

			conf[key] = value
			text, err := yaml.Marshal(conf)
			if err != nil {
				t.Fatal(err)
			}

			want := key + ": " + value + " is not what the table of nodes has for this node"
			if err := r.client.SetConfig(t.Context(), text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a file that is given: %v", err)
			}

			r.write(conf)
			if err := r.client.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("reload: %v", err)
			}

			if err := r.stop(); err != nil {
				t.Fatal(err)
			}

			r.start()
			d := r.until("says that it does not follow the file",
				func(d status.Document) bool { return shows(d, status.ConfigDiffers, want) })
			if !one(d) {
				t.Errorf("cluster %s, nodes %+v", d.Cluster, d.Nodes)
			}
		})
	}
}
