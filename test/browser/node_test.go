package browser

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"saltern/test/lab"
)

// site is a node with a minion whose key waits, and its salt-api.
type site struct {
	*lab.Node
	minion *lab.Minion
	base   string
}

const broken = `good:
  test.succeed_with_changes: []
bad:
  test.fail_with_changes:
    - comment: the web server is not there
`

// viewed are the runners that somebody needs to see the fleet, minions and jobs.
var viewed = []any{"presence.minions", "cache.grains", `jobs\.list_.*`, `fleet\..*`}

// start makes a site; section are lines of rest_cherrypy, tree the files for minions.
func start(t *testing.T, id, section string, tree map[string]string) site {
	t.Helper()
	n := lab.StartNode(t, lab.NodeConfig{
		Options: map[string]any{
			"timeout":            5,
			"gather_job_timeout": 5,
			"sharedsecret":       "right",
			"external_auth": map[string]any{"sharedsecret": map[string]any{
				"alice": []any{".*", "@runner", "@wheel", "@jobs"},
				"vera": []any{map[string]any{"@runner": append([]any{"schedule.list", "saved.jobs", "saved.targets", "saved.schedules",
					"audit.records"}, viewed...)}, map[string]any{"@wheel": []any{"key.list_all", "key.finger"}}},
				"oscar": []any{map[string]any{"web*": []any{".*"}}, map[string]any{"@runner": viewed}},
				"otto": []any{map[string]any{"web*": []any{".*"}}, "@jobs",
					map[string]any{"@runner": []any{"manage.versions", "state.orchestrate_show_sls"}},
					map[string]any{"@wheel": []any{"key.list_all", "key.finger", "config.values",
						"minions.connected"}}}}},
			"saltgui_templates": map[string]any{},
		},
		States: tree,
		Pillar: map[string]string{"top.sls": "base: {'*': [web]}\n", "web.sls": "role: web\nusers: [anna, otto]\n"},
	})

	s := site{n, lab.StartMinion(t, n, id, lab.Newest, nil), serve(t, n, section)}
	lab.Eventually(t, time.Minute, "the key waits", func() error {
		if k := n.Keys(t); len(k["pending"]) != 1 {
			return fmt.Errorf("%v", k)
		}
		return nil
	})

	return s
}

// serve runs the salt-api of a node and returns its address.
func serve(t *testing.T, n *lab.Node, section string) string {
	t.Helper()
	dir := lab.Dir(t)
	lab.WriteTree(t, dir, map[string]string{"etc/master": fmt.Sprintf(`include: %s/master
api_pidfile: %[2]s/pid
api_logfile: %[2]s/log
netapi_enable_clients: [local, local_async, local_batch, local_subset, runner, runner_async, wheel, wheel_async]
rest_cherrypy:
  host: %[3]s
  port: 14001
  disable_ssl: true
`, n.Settings.MasterConf(), dir, n.Addr) + section})

	lab.Start(t, "salt-api", filepath.Join(dir, "out"), lab.Bin(t, "salt-api"), "-c",
		filepath.Join(dir, "etc"), "-l", "info")
	base := fmt.Sprintf("http://%s:14001", n.Addr)
	lab.Eventually(t, time.Minute, "salt-api answers", func() error {
		res, err := http.Get(base + "/")
		if err != nil {
			return err
		}
		return res.Body.Close()
	})

	return base
}
