//go:build e2e

package e2e

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/lab"
)

// fleetWays asks one node for the numbers of the fleet by HTTP, by its console and by its metrics.
type fleetWays struct {
	*fleetTest
	member *lab.Member
	base   string
	token  string
}

// checkWays compares what a node says by all ways with its runs by salt-run.
func (f *fleetTest) checkWays(t *testing.T, m *lab.Member, rows map[fleetRow]int) {
	t.Helper()
	w := &fleetWays{fleetTest: f, member: m}
	w.startAPI(t)

	last := map[fleetRow]int{}
	results := map[string]int{"never": 0}
	for r, n := range rows {
		if r.JID == f.jobs[len(f.jobs)-1] {
			last[r] += n
			results[r.Result] += n
		}
	}

	for name, err := range map[string]error{
		"GET /fleet/runs, JSON in pages": sameRows("salt-run", rows, "HTTP", w.rows(t, "runs", "limit=700")),
		"GET /fleet/runs, CSV in pages":  sameRows("salt-run", rows, "CSV", w.rowsOfCSV(t, "runs", "limit=900")),
		"GET /fleet/last, JSON": sameRows("salt-run", last, "HTTP",
			w.rows(t, "last", "limit=10000&brief=True")),
		"GET /fleet/last, CSV": sameRows("salt-run", last, "CSV",
			w.rowsOfCSV(t, "last", "limit=10000&brief=True")),
		"metrics": w.sameMetrics(results),
		"console": w.sameConsole(t, results),
	} {
		if err != nil {
			t.Errorf("%s of %s: %v", name, m.Addr, err)
		}
	}
}

// startAPI starts a salt-api beside the member's master, and logs in.
func (w *fleetWays) startAPI(t *testing.T) {
	t.Helper()
	const port = 14800
	dir := lab.Dir(t)
	lab.WriteTree(t, dir, map[string]string{"etc/master": fmt.Sprintf(`include: %s/etc/master
api_pidfile: %[2]s/pid
api_logfile: %[2]s/log
netapi_enable_clients: [runner]
rest_cherrypy:
  host: %[3]s
  port: %[4]d
  disable_ssl: true
  console: true
`, w.member.Dir, dir, w.member.Addr, port)})
	lab.Start(t, "salt-api "+w.member.Addr, filepath.Join(dir, "out"), lab.Bin(t, "salt-api"), "-c",
		filepath.Join(dir, "etc"), "-l", "info")
	w.base = fmt.Sprintf("http://%s:%d", w.member.Addr, port)

	form := url.Values{"username": {"alice"}, "password": {"right"}, "eauth": {"sharedsecret"}}
	lab.Eventually(t, time.Minute, "salt-api takes a log-in", func() error {
		res, err := http.PostForm(w.base+"/login", form)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if w.token = res.Header.Get("X-Auth-Token"); w.token == "" {
			return fmt.Errorf("status %s", res.Status)
		}
		return nil
	})
}

// get asks for a view. kind is the type of the answer.
func (w *fleetWays) get(t *testing.T, path, kind string) (body io.ReadCloser, next string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", w.token)
	r.Header.Set("Accept", kind)
	client := http.Client{Timeout: 2 * time.Minute}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		t.Fatalf("%s: %s: %s", path, res.Status, text)
	}
	return res.Body, res.Header.Get("X-Next")
}

// pageArg returns the argument by which a view gets its next page.
func pageArg(view, next string) string {
	name := map[string]string{"runs": "page", "last": "after"}[view]
	return "&" + name + "=" + url.QueryEscape(next)
}

// rows returns all pages of a view.
func (w *fleetWays) rows(t *testing.T, view, query string) map[fleetRow]int {
	t.Helper()
	out := map[fleetRow]int{}
	for more := ""; ; {
		body, _ := w.get(t, "/fleet/"+view+"?"+w.filter(view)+query+more, "application/json")
		var answer struct {
			Return []struct {
				Runs    []fleetRow
				Minions map[string]fleetRow
				Next    string
			}
		}
		if err := json.NewDecoder(body).Decode(&answer); err != nil || len(answer.Return) != 1 {
			t.Fatalf("%s: %v", view, err)
		}
		_ = body.Close()

		one := answer.Return[0]
		for _, r := range one.Runs {
			out[r]++
		}
		for id, r := range one.Minions {
			r.Minion = id
			out[r]++
		}
		if one.Next == "" {
			return out
		}
		more = pageArg(view, one.Next)
	}
}

func (w *fleetWays) filter(view string) string {
	if view == "runs" {
		return "function=state.apply&"
	}
	return ""
}

// rowsOfCSV returns all pages of a view, as tables.
func (w *fleetWays) rowsOfCSV(t *testing.T, view, query string) map[fleetRow]int {
	t.Helper()
	out := map[fleetRow]int{}
	for more := ""; ; {
		body, next := w.get(t, "/fleet/"+view+"?"+w.filter(view)+query+more, "text/csv")
		lines, err := csv.NewReader(body).ReadAll()
		_ = body.Close()
		if err != nil || len(lines) == 0 {
			t.Fatalf("%s: %v", view, err)
		}

		minion := slices.Index(lines[0], "minion")
		jid := slices.Index(lines[0], "jid")
		result := slices.Index(lines[0], "result")
		for _, line := range lines[1:] {
			out[fleetRow{line[minion], line[jid], line[result]}]++
		}
		if next == "" {
			return out
		}
		more = pageArg(view, next)
	}
}

// sameMetrics compares what the master reports for the metrics saltern_fleet_minions and the like.
func (w *fleetWays) sameMetrics(results map[string]int) error {
	text, err := os.ReadFile(filepath.Join(w.member.Dir, "cache", control.StatusFile))
	if err != nil {
		return err
	}
	var status struct{ Fleet control.Fleet }
	if err := json.Unmarshal(text, &status); err != nil {
		return err
	}

	total := 0
	for result, n := range status.Fleet.LastRuns {
		total += n
		if n != results[result] {
			return fmt.Errorf("%d minions are %s, not %d", n, result, results[result])
		}
	}
	ages := 0
	for _, n := range status.Fleet.Ages {
		ages += n
	}
	history := status.Fleet.History
	want := len(w.s.minions) + len(w.real)
	if total != want || ages != want || status.Fleet.Drifted != 0 || history == nil || history.Damaged+history.LeftOut > 0 {
		return fmt.Errorf("of %d minions %d have a result and %d an age: %+v", want, total, ages, status.Fleet)
	}
	return nil
}

var legend = regexp.MustCompile(`<strong>([0-9]+)</strong> ([a-z ]+)`)

// sameConsole compares the numbers of the console's page Fleet.
func (w *fleetWays) sameConsole(t *testing.T, results map[string]int) error {
	t.Helper()
	code, text, _ := atConsole(t, w.base, "alice").send(t, "GET", "/console/fleet", nil)
	if code != http.StatusOK {
		return fmt.Errorf("status %d", code)
	}
	words := map[string]string{"ok": "ok", "changed": "changed", "failed": "failed", "error": "could not run states"}
	found := map[string]int{}
	for _, m := range legend.FindAllStringSubmatch(text, -1) {
		found[m[2]], _ = strconv.Atoi(m[1])
	}
	for result, word := range words {
		if found[word] != results[result] {
			return fmt.Errorf("the legend has %v, not %v", found, results)
		}
	}
	return nil
}
