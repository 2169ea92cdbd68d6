// Package metrics serves a node's state on a local port: /metrics for Prometheus, /healthz (the
// supervisor runs) and /readyz (minions can work with this node) for load balancers and
// orchestrators.
//
// All numbers come from the status document; this package measures nothing. The names, types and
// labels of metrics are stable like the document's fields: new ones may come, but none is renamed
// or removed. See docs/monitoring/README.md.
package metrics

import (
	"io"
	"time"

	"saltern/internal/control"
	"saltern/internal/prometheus"
	"saltern/supervisor/status"
)

// writeText writes the document in Prometheus' text format
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
func writeText(w io.Writer, d status.Document) error {
	var p page
	p.Family("saltern_info", "gauge", "What runs here; always 1.")
	p.Sample("saltern_info", 1, "version", d.Version, "node", d.Node, "cluster", d.Cluster)
	p.Family("saltern_health", "gauge", "1 for the health of the node, 0 for the others.")

	for _, h := range []status.Health{status.Healthy, status.Degraded, status.NotServing, status.Unconfigured} {
		p.Sample("saltern_health", oneIf(d.Health == h), "state", string(h))
	}

	p.Family("saltern_setup", "gauge", "1 for the state of the set-up, 0 for the others.")
	for _, s := range []status.Setup{status.SetupNew, status.SetupPreflight, status.SetupForming,
		status.SetupJoining, status.SetupWaiting,
		status.SetupReady, status.SetupDegraded, status.SetupDraining, status.SetupRemoved, status.SetupFailed} {
		p.Sample("saltern_setup", oneIf(d.Setup == s), "state", string(s))
	}

	if !d.Arbiter() { // an arbiter never serves minions
		p.Single("saltern_serving", "gauge", "1 while minions can work with this node.", oneIf(serving(d)))
	}

	p.Single("saltern_start_time_seconds", "gauge", "When the supervisor started.", seconds(d.Started))
	if d.Serves() && !d.Arbiter() {
		p.Single("saltern_serving_since_seconds", "gauge", "Since when this node serves.", seconds(*d.ServingSince))
	}

	p.problems(d)
	p.writeNodes(d)
	p.services(d)
	if !d.Arbiter() {
		p.minions(d)
	}

	p.storage(d)
	p.backup(d.Backup)
	_, err := w.Write(p.Bytes())
	return err
}

// serving reports whether /readyz answers that the node is ready.
func serving(d status.Document) bool {
	return d.Serves() && !d.Arbiter() && d.Setup != status.SetupDraining && d.Setup != status.SetupRemoved
}

func (p *page) problems(d status.Document) {
	p.Family("saltern_problem", "gauge",
		"1 for each problem that status shows; see docs/troubleshooting.md for the codes.")
	for _, x := range d.Problems {
		p.Sample("saltern_problem", 1, "code", string(x.Code), "severity", string(x.Severity), "subject", x.Subject)
	}

	p.Family("saltern_problems", "gauge", "How many problems status shows.")
	for _, s := range []status.Severity{status.Fatal, status.Warning, status.Notice} {
		n := 0
		for _, x := range d.Problems {
			if x.Severity == s {
				n++
			}
		}
		p.Sample("saltern_problems", float64(n), "severity", string(s))
	}
}

func (p *page) writeNodes(d status.Document) {
	p.Family("saltern_node_ready", "gauge", "1 for each node of the cluster that is ready, as this node sees it.")
	for _, n := range d.Nodes {
		p.Sample("saltern_node_ready", oneIf(n.State == "ready"), "node", n.Name)
	}
	if d.Virtual == nil {
		return
	}
	p.Family("saltern_virtual_address", "gauge", "1 for each node that has the virtual address, as this node sees it.")
	for _, n := range d.Nodes {
		p.Sample("saltern_virtual_address", oneIf(n.Virtual), "node", n.Name)
	}
}

func (p *page) services(d status.Document) {
	p.Family("saltern_service_running", "gauge", "1 while a service of this node runs.")
	for _, s := range d.Services {
		p.Sample("saltern_service_running", oneIf(s.State == "running"), "service", s.Name)
	}
	p.Family("saltern_service_restarts_total", "counter", "How often a service was started again.")
	for _, s := range d.Services {
		p.Sample("saltern_service_restarts_total", float64(s.Restarts), "service", s.Name)
	}
}

func (p *page) minions(d status.Document) {
	p.Family("saltern_minion_keys", "gauge", "Keys of minions by state.")
	for _, k := range []struct {
		state string
		n     int
	}{
		{"accepted", d.Minions.Accepted},
		{"pending", d.Minions.Pending},
		{"rejected", d.Minions.Rejected},
		{"denied", d.Minions.Denied},
	} {
		p.Sample("saltern_minion_keys", float64(k.n), "state", k.state)
	}

	if c := d.Minions.Connected; c != nil {
		p.Single("saltern_minions_connected", "gauge",
			"Minions connected to the publish port of this node's front.", float64(*c))
	}

	m := d.Master
	if m == nil {
		return
	}

	p.Single("saltern_master_report_time_seconds", "gauge", "When the master last told about itself.",
		seconds(m.Written))
	p.Single("saltern_master_requests_total", "counter",
		"Requests of minions and commands since the master's start.", float64(m.Requests))
	p.Single("saltern_master_returns_total", "counter", "Returns of jobs taken since the master's start.",
		float64(m.Returns))
	p.Single("saltern_master_jobs_total", "counter", "Jobs published since the master's start.", float64(m.Jobs))
	p.Single("saltern_master_oldest_request_seconds", "gauge",
		"How long the longest running request has been at work.", float64(m.OldestRequestMillis)/1000)
	p.Single("saltern_master_pillar_error_minions", "gauge", "Minions whose last pillar had errors.",
		float64(m.PillarErrorMinions))
	p.Single("saltern_master_pillars_unanswered_total", "counter",
		"Questions for pillars that the master could not answer, since its start; their minions ask again.",
		float64(m.PillarsUnanswered))
	if r := m.Resources; r != nil {
		p.Single("saltern_master_resources", "gauge", "Resources that minions have registered.", float64(r.Known))
		p.Single("saltern_master_resources_refused_total", "counter",
			"Registrations and ids of resources that were refused since the master's start.", float64(r.Refused))
	}
	p.waiting(m.Waiting)

	if memo := m.PillarMemo; memo != nil {
		p.Family("saltern_master_pillar_templates_total", "counter",
			"Pillar templates by what the memo did for them, since the master's start.")
		p.Sample("saltern_master_pillar_templates_total", float64(memo.Hits), "memo", "hit")
		p.Sample("saltern_master_pillar_templates_total", float64(memo.Misses), "memo", "miss")
		p.Sample("saltern_master_pillar_templates_total", float64(memo.Alone), "memo", "alone")
		p.Single("saltern_master_pillar_memo_dropped_total", "counter",
			"Results in the memo of pillar templates that made room for others.", float64(memo.Dropped))
		p.Single("saltern_master_pillar_memo_results", "gauge", "Results in the memo of pillar templates.",
			float64(memo.Results))
		p.Single("saltern_master_pillar_memo_bytes", "gauge",
			"Memory of the memo of pillar templates, by estimate.", float64(memo.Bytes))
	}

	p.writeFiles(m.Files)
	p.runners(m.Runners)
	p.returners(m.Returners)
	p.postgres(m.Postgres)
	p.engines(m.Engines)
	p.fleet(m.Fleet)
	p.notify(m.Notify)
}

// writeFiles writes the metrics of the copy of the shared volume from which the master serves. f
// may be nil: there is no such copy.
func (p *page) writeFiles(f *control.Files) {
	if f == nil {
		return
	}

	p.Single("saltern_master_files_time_seconds", "gauge",
		"Of which time the files are that the master last had copied.", seconds(f.AsOf))
	p.Single("saltern_master_files_old", "gauge",
		"1 while the files, or some of them, are older than somebody needed.", oneIf(f.Old != ""))
	p.Single("saltern_master_files_questions_total", "counter",
		"Questions to the supervisor for the newest files, since the master's start.",
		float64(f.Questions))
	p.Single("saltern_master_files_late_total", "counter", "Questions after which the files were no newer.",
		float64(f.Late))
	p.Single("saltern_master_files_seconds_total", "counter", "Time that questions took.", f.Seconds)
	p.Single("saltern_master_files_waits_total", "counter",
		"Requests and runners that waited for a question; many share one.", float64(f.Waits))
	p.Single("saltern_master_files_served_old_total", "counter",
		"Requests of minions that were served older files than they need.", float64(f.ServedOld))
	p.Single("saltern_master_files_refused_total", "counter",
		"Requests not answered because too many wait; minions ask again.", float64(f.Refused))
}

// runners writes the metrics of runner and wheel functions in Python. r may be nil: nothing is
// known.
func (p *page) runners(r *control.Runners) {
	if r == nil {
		return
	}

	p.Single("saltern_master_runner_workers", "gauge", "Runner and wheel functions of Python at work.",
		float64(r.Workers))
	p.Single("saltern_master_runner_waiting", "gauge", "Calls of such functions that wait for a place.",
		float64(r.Waiting))
	p.Single("saltern_master_runner_calls_total", "counter",
		"Calls of such functions that had a place, since the master's start.", float64(r.Calls))
	p.Single("saltern_master_runner_lost_total", "counter", "Calls whose process ended without an answer.",
		float64(r.Lost))
	p.Single("saltern_master_runner_left_total", "counter", "Calls that did not get a place in their time.",
		float64(r.Left))
	p.Single("saltern_master_runner_seconds_total", "counter", "Time that calls took.", r.Seconds)
	p.Single("saltern_master_runner_waited_seconds_total", "counter", "Time that calls waited for a place.", r.Waited)
	p.Family("saltern_master_runner_python_starts_total", "counter",
		"New starts of the Python that starts such functions, by cause.")
	p.Sample("saltern_master_runner_python_starts_total", float64(r.Restarts), "cause", "died")
	p.Sample("saltern_master_runner_python_starts_total", float64(r.Renewals), "cause", "changed")
}

// returners writes the metrics of the returners of events.
func (p *page) returners(all []control.Returner) {
	for _, f := range []struct {
		name, kind, help string
		of               func(control.Returner) float64
	}{
		{"saltern_master_returner_waiting", "gauge", "Events that wait on the disk for a returner.",
			func(r control.Returner) float64 { return float64(r.Waiting) }},
		{"saltern_master_returner_failing", "gauge", "1 while a returner takes nothing.",
			func(r control.Returner) float64 { return oneIf(r.Error != "") }},
		{"saltern_master_returner_events_total", "counter",
			"Events that a returner has taken, since the master's start.",
			func(r control.Returner) float64 { return float64(r.Done) }},
		{"saltern_master_returner_lost_total", "counter",
			"Events that a returner did not get, as they found no room or made room for later ones.",
			func(r control.Returner) float64 { return float64(r.Lost) }},
		{"saltern_master_returner_refused_total", "counter", "Events that a returner has refused.",
			func(r control.Returner) float64 { return float64(r.Refused) }},
	} {
		if len(all) == 0 {
			return
		}
		p.Family(f.name, f.kind, f.help)
		for _, r := range all {
			p.Sample(f.name, f.of(r), "returner", r.Name)
		}
	}
}

// postgres writes the metrics of PostgreSQL; d may be nil: the master writes into none.
func (p *page) postgres(d *control.Postgres) {
	if d == nil {
		return
	}
	all := []family{
		{"saltern_master_postgres_failing", "gauge", "1 while the database takes nothing.", oneIf(d.Error != "")},
		{"saltern_master_postgres_waiting", "gauge", "Loads and returns that wait on the disk for the database.",
			float64(d.Waiting)},
		{"saltern_master_postgres_spool_bytes", "gauge", "Bytes that these take.", float64(d.SpoolBytes)},
		{"saltern_master_postgres_spool_limit_bytes", "gauge", "Bytes that these may take.", float64(d.SpoolMost)},
		{"saltern_master_postgres_returns_total", "counter",
			"Returns that this master has written into the database, since its start.", float64(d.Written)},
		{"saltern_master_postgres_known_total", "counter",
			"Returns that the database already had, most from other masters.", float64(d.Known)},
		{"saltern_master_postgres_adapted_total", "counter",
			"Loads and returns with values that the database cannot hold as they are.", float64(d.Adapted)},
		{"saltern_master_postgres_refused_total", "counter", "Loads and returns that the database did not take.",
			float64(d.Refused)},
		{"saltern_master_postgres_lost_total", "counter", "Loads and returns that made room for later ones.",
			float64(d.Lost)},
		{"saltern_master_postgres_unanswered_total", "counter", "Look-ups that the database did not answer.",
			float64(d.Unanswered)},
	}
	if e := d.Events; e != nil {
		all = append(all,
			family{"saltern_master_postgres_events_failing", "gauge", "1 while the database takes no events.",
				oneIf(e.Error != "")},
			family{"saltern_master_postgres_events_waiting", "gauge", "Events that wait on the disk for the database.",
				float64(e.Waiting)},
			family{"saltern_master_postgres_events_spool_bytes", "gauge", "Bytes that these take.",
				float64(e.SpoolBytes)},
			family{"saltern_master_postgres_events_total", "counter",
				"Events that this master has written into the database, since its start.", float64(e.Written)},
			family{"saltern_master_postgres_events_refused_total", "counter", "Events that the database did not take.",
				float64(e.Refused)},
			family{"saltern_master_postgres_events_lost_total", "counter",
				"Events that found no room on the disk, or made room for later ones.", float64(e.Lost)},
		)
	}
	for _, f := range all {
		p.Family(f.name, f.kind, f.help)
		p.Sample(f.name, f.value)
	}
}

// family is a metric with one sample.
type family struct {
	name, kind, help string
	value            float64
}

// engines writes the metrics of engines.
func (p *page) engines(all []control.Engine) {
	if len(all) == 0 {
		return
	}

	p.Family("saltern_master_engine_running", "gauge", "1 for an engine that runs on this node.")
	for _, e := range all {
		p.Sample("saltern_master_engine_running", oneIf(e.State == "running"), "engine", e.Name)
	}

	p.Family("saltern_master_engine_failing", "gauge",
		"1 for an engine that has ended by itself, until it has run for a minute.")
	for _, e := range all {
		p.Sample("saltern_master_engine_failing", oneIf(e.Error != ""), "engine", e.Name)
	}

	p.Family("saltern_master_engine_starts_total", "counter",
		"Starts of an engine on this node, since the master's start.")
	for _, e := range all {
		p.Sample("saltern_master_engine_starts_total", float64(e.Starts), "engine", e.Name)
	}
}

// waiting writes the metrics of the master's queues.
func (p *page) waiting(w status.Waiting) {
	work := []struct {
		name string
		status.Queue
	}{{"pillars", w.Pillars}, {"runners", w.Runners}, {"reactions", w.Reactions}, {"scheduled", w.Scheduled}}

	for _, f := range []struct {
		name, kind, help string
		of               func(status.Queue) float64
	}{
		{"saltern_master_work_waiting", "gauge", "Work of the master that waits for its turn.",
			func(q status.Queue) float64 { return float64(q.Waiting) }},
		{"saltern_master_work_running", "gauge", "Work of the master that has its turn.",
			func(q status.Queue) float64 { return float64(q.Working) }},
		{"saltern_master_work_oldest_seconds", "gauge", "How long the first that waits has waited.",
			func(q status.Queue) float64 { return float64(q.OldestMillis) / 1000 }},
		{"saltern_master_work_begun_total", "counter", "Turns since the master's start.",
			func(q status.Queue) float64 { return float64(q.Begun) }},
		{"saltern_master_work_waited_seconds_total", "counter", "Seconds that these have waited.",
			func(q status.Queue) float64 { return q.Waited }},
		{"saltern_master_work_lost_total", "counter",
			"Work that found no room; minions ask again for pillars and runners.",
			func(q status.Queue) float64 { return float64(q.Lost) }},
	} {
		p.Family(f.name, f.kind, f.help)
		for _, q := range work {
			p.Sample(f.name, f.of(q.Queue), "work", q.name)
		}
	}
}

func (p *page) storage(d status.Document) {
	if d.Storage.Total > 0 {
		p.Single("saltern_storage_size_bytes", "gauge", "Size of the file system with keys and files.",
			float64(d.Storage.Total))
		p.Single("saltern_storage_free_bytes", "gauge", "Free space there, for ordinary users.",
			float64(d.Storage.Free))
		p.Single("saltern_storage_inodes_free_ratio", "gauge", "Free inodes there, 0 to 1.", d.Storage.InodesFree/100)
	}
	if s := d.Clock.Synchronised; s != nil {
		p.Single("saltern_clock_synchronised", "gauge", "1 while the kernel's clock is disciplined.", oneIf(*s))
	}
}

func (p *page) backup(b *status.Backup) {
	if b == nil {
		return
	}
	last := 0.0
	if b.Last != nil {
		last = seconds(b.Last.Time)
		p.Single("saltern_backup_size_bytes", "gauge", "Size of the newest scheduled backup.", float64(b.Last.Bytes))
	}
	p.Single("saltern_backup_last_time_seconds", "gauge",
		"When the newest scheduled backup was begun, by any node; 0: there is none.", last)
	p.Single("saltern_backup_failed", "gauge", "1 while the last try came to nothing.", oneIf(b.Failure != nil))
}

// page is the text of the metrics while it is being written.
type page struct{ prometheus.Page }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
