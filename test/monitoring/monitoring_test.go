//go:build monitoring

// Package monitoring checks docs/monitoring with Debian's Prometheus: that a scrape of
// a real node gives what the rules and the dashboard ask for. The rules by themselves
// are checked by test/docs.
package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/test/lab"
)

// program finds a program of Debian's package prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: apt-get install prometheus", err)
	}
	return path
}

func docs(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "docs", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// expressions are those of the rules, and of the panels of the dashboard.
func expressions(t *testing.T) (rules, panels []string) {
	t.Helper()
	b, err := os.ReadFile(docs(t, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var alerts struct {
		Groups []struct {
			Rules []struct{ Expr string }
		}
	}

	if err := yaml.Unmarshal(b, &alerts); err != nil {
		t.Fatal(err)
	}

	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			rules = append(rules, r.Expr)
		}
	}

	if b, err = os.ReadFile(docs(t, "dashboard.json")); err != nil {
		t.Fatal(err)
	}

	var dash struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}

	if err := json.Unmarshal(b, &dash); err != nil {
		t.Fatal(err)
	}

	for _, p := range dash.Panels {
		for _, x := range p.Targets {
			panels = append(panels, strings.ReplaceAll(x.Expr, "$instance", ".*"))
		}
	}

	return rules, panels
}

// query asks Prometheus and gives the number of samples.
func query(t *testing.T, base, expr string) (int, error) {
	t.Helper()
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	var a struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}

	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return 0, err
	}
	if a.Status != "success" {
		return 0, fmt.Errorf("%s", a.Error)
	}

	return len(a.Data.Result), nil
}

// TestScrape lets a real Prometheus scrape a real node.
func TestScrape(t *testing.T) {
	// A rule whose destination refuses connections, and a run that fails.
	n := lab.StartNode(t, lab.NodeConfig{
		Options: map[string]any{"auto_accept": true, "saltern_notify": []any{map[string]any{
			"name": "night",
			"on":   "failed",
			"to":   map[string]any{"url": "http://127.0.0.1:9/hook"},
		}}},
		States: map[string]string{"broken.sls": "broken:\n  test.fail_without_changes: []\n"},
	})
	// Only a state that fails on several minions has a series of its own.
	ids := []string{"web1", "web2"}
	for _, id := range ids {
		lab.StartMinion(t, n, id, lab.Newest, nil)
	}
	n.Ping(t, time.Minute, ids...)
	n.Salt(t, "web*", "state.apply", "broken")

	target := n.Settings.Metrics.Listen
	lab.Eventually(t, 60*time.Second, "the failed run is counted", func() error {
		resp, err := http.Get("http://" + target + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(text), `{state="test.fail_without_changes broken"} 2`) {
			err = errors.New("it is not there")
		}
		return err
	})

	resp, err := http.Get("http://" + target + "/metrics")
	if err != nil {
		t.Fatal(err)
	}

	check := exec.Command(program(t, "promtool"), "check", "metrics")
	check.Stdin = resp.Body
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}

	_ = resp.Body.Close()

	dir := lab.Dir(t)
	conf := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n  - job_name: saltern\n    static_configs: [{targets: ['%s']}]\n",
		docs(t, "alerts.yaml"), target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}

	listen := lab.Address(t, 9090) + ":9090"
	lab.Start(t, "prometheus", filepath.Join(dir, "log"), program(t, "prometheus"), "--config.file="+
		filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	base := "http://" + listen
	lab.Eventually(t, 90*time.Second, "the node is scraped", func() error {
		got, err := query(t, base, `up{job="saltern"} == 1`)
		if err == nil && got != 1 {
			err = fmt.Errorf("%d targets are up", got)
		}
		return err
	})

	for _, q := range []string{"saltern_serving == 1", `saltern_fleet_minions{result="failed"} == 2`,
		`saltern_notify_failing{destination="night/1"} == 1`, "saltern_history_runs > 0",
		`saltern_fleet_runs_total{function="state.apply",result="failed"} == 2`,
		`ALERTS{alertname="SalternNotifyFailing",alertstate="pending"}`,
		`ALERTS{alertname="SalternMinionsFailed",alertstate="pending"}`, `saltern_service_running{service="lb"} == 1`,
		"saltern_lb_sessions", `saltern_lb_backend_up == 1`, "saltern_storage_free_bytes > 0"} {
		lab.Eventually(t, 60*time.Second, q, func() error {
			got, err := query(t, base, q)
			if err == nil && got == 0 {
				err = fmt.Errorf("no sample")
			}
			return err
		})
	}

	rules, panels := expressions(t)
	for _, x := range panels { // none is empty, but for that of the problems
		lab.Eventually(t, 60*time.Second, x, func() error {
			got, err := query(t, base, x)
			if err == nil && got == 0 && !strings.HasPrefix(x, "saltern_problem{") {
				err = errors.New("the panel is empty")
			}
			return err
		})
	}

	name := regexp.MustCompile(`saltern_[a-z_]+`)
	var names []string
	for _, x := range append(rules, panels...) {
		if _, err := query(t, base, x); err != nil {
			t.Errorf("%s: %v", x, err)
		}

		for _, m := range name.FindAllString(x, -1) {
			// Without problems and without backup in appliance.yaml these are not served.
			absent := []string{"saltern_problem", "saltern_backup_last_time_seconds"}
			if !slices.Contains(names, m) && !slices.Contains(absent, m) {
				names = append(names, m)
			}
		}
	}

	if len(names) < 12 {
		t.Errorf("only %v are asked for", names)
	}

	for _, m := range names {
		lab.Eventually(t, 60*time.Second, m, func() error {
			got, err := query(t, base, m)
			if err == nil && got == 0 {
				err = fmt.Errorf("no sample")
			}
			return err
		})
	}
}
