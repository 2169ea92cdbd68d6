package observe

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/lbproxy"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// healthyFacts are those of a node with nothing wrong.
func healthyFacts(cfg *settings.Settings) facts {
	yes := true
	return facts{
		now: now, observed: true, clock: &yes,
		services: []service.Info{
			{Name: status.MasterService, State: service.Running, Since: now},
			{Name: status.BalancerService, State: service.Running, Since: now},
		},
		Node:     Node{Blocked: map[string][]status.Finding{}},
		balancer: &balancerFacts{backends: 1, up: 1, fdBudget: 1000, fdFree: 900},
		slowAnswer: slowAnswer{keys: &probe.Keys{},
			disks: map[string]diskFact{cfg.DataDir: {Disk: probe.Disk{
				Total:         100,
				Free:          50,
				FreePercent:   50,
				InodesPercent: 100,
			}}}},
	}
}

func TestFindings(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.Storage.Path = "/srv/cluster"
	refused := errors.New("connection refused")
	crashed := func(line string) func(*facts) {
		return func(f *facts) {
			f.services[0] = service.Info{
				Name:     status.MasterService,
				State:    service.Pausing,
				Failures: 3,
				LastExit: "exit code 1",
				LastLine: line,
			}
		}
	}

	disk := func(d probe.Disk) func(*facts) {
		return func(f *facts) { f.disks = map[string]diskFact{cfg.DataDir: {Disk: d}} }
	}
	said := func(change func(*control.Status)) func(*facts) {
		return func(f *facts) {
			f.services[0].PID = 7
			f.master = &control.Status{Schema: 1, PID: 7, Written: now.Add(-time.Second)}
			change(f.master)
		}
	}

	apiState := func(api service.Info) func(*facts) { // the front leads nowhere meanwhile (m9)
		return func(f *facts) {
			api.Name = status.APIService
			f.services = append(f.services, api)
			f.balancer.api = &apiFront{listens: true, down: map[string]string{"n1": "refused"}}
			if d := f.balancer.api.document(&cfg, *f); d.Starting != f.apiStarts() {
				t.Errorf("the status says that it starts: %v", d.Starting)
			}
		}
	}

	for _, c := range []struct {
		name   string
		change func(*facts)
		want   string // "CODE subject: cause" joined by " | "
	}{
		{"all is well", func(*facts) {}, ""},
		{"not looked yet", func(f *facts) { f.observed, f.front = false, refused }, ""},
		{"stopping hides the rest", func(f *facts) { f.Stopping, f.front = true, refused }, "SCA-603"},
		{"crash loop", crashed("boom"), "SCA-201: exit code 1, 3 times in a row; last line: boom"},
		{"crash: port", crashed("bind: address already in use"),
			"SCA-205 master: bind: address already in use | SCA-201: exit code 1, 3 times in a row; last line: bind: address already in use"},
		{"crash: key", crashed("open /x/master.pem: permission denied"),
			"SCA-204 of the master: open /x/master.pem: permission denied | SCA-201: "},
		{"crash: option", crashed("config /etc/salt/master: timeout: expected a number"),
			"SCA-202: config /etc/salt/master: timeout: expected a number | SCA-201: "},
		{"the API crashes", func(f *facts) {
			f.services = append(f.services,
				service.Info{
					Name:     status.APIService,
					State:    service.Pausing,
					Failures: 2,
					LastExit: "exit code 1",
					LastLine: "boom",
				})
		}, "SCA-220: salt-api: exit code 1, 2 times in a row; last line: boom"},
		{"the API does not answer", func(f *facts) {
			f.services = append(f.services,
				service.Info{Name: status.APIService, State: service.Failing, Message: "it is silent"})
		}, "SCA-220: it is silent"},
		{"the API waits", func(f *facts) {
			f.services = append(f.services,
				service.Info{Name: status.APIService, State: service.Waiting, Message: "waiting for master"})
		}, ""},
		{"the API is not started", func(f *facts) {
			f.services = append(f.services, service.Info{Name: status.APIService, State: service.Waiting})
			f.Blocked = map[string][]status.Finding{status.APIService: {{
				Code:  status.APIDown,
				Cause: "port must be a number",
			}}}
		}, "SCA-220: port must be a number"},
		{"crash: exit code", func(f *facts) {
			f.services[0] = service.Info{
				Name:     status.MasterService,
				State:    service.Pausing,
				Failures: 1,
				LastExit: "exit code 78",
				LastLine: "/etc/x: nonsense",
			}
		}, "SCA-202: /etc/x: nonsense | SCA-201: "},
		{"crash: disk", crashed("write /x: no space left on device"),
			"SCA-402 /x: write /x: no space left on device | SCA-201: "},
		{"between two crashes", func(f *facts) {
			f.services[0] = service.Info{
				Name:     status.MasterService,
				State:    service.Starting,
				Failures: 1,
				LastExit: "killed by SIGSEGV",
				Since:    now,
			}
		}, "SCA-201: killed by SIGSEGV"},
		{"starting", func(f *facts) { f.services[0].State, f.front = service.Starting, nil }, ""},
		{"starting for long", func(f *facts) {
			f.services[0] = service.Info{
				Name:    status.MasterService,
				State:   service.Starting,
				Message: "waiting for it",
				Since:   now.Add(-time.Minute),
			}
		}, "SCA-203: waiting for it"},
		{"silent", func(f *facts) {
			f.services[0].State = service.Failing
			f.services[0].Message = "no answer"
		}, "SCA-203: no answer"},
		{"blocked", func(f *facts) {
			f.services[0].State = service.Waiting
			f.Blocked[status.MasterService] = []status.Finding{{
				Code:    status.KeyUnreadable,
				Subject: "/k",
				Cause:   "cut short",
			}}
		}, "SCA-204 /k: cut short"},
		{"load balancer crashed", func(f *facts) {
			f.services[1] = service.Info{Name: status.BalancerService, State: service.Pausing, LastExit: "exit code 2"}
			f.balancer = nil
			f.balErr = refused
			f.front = refused
		}, "SCA-301: exit code 2 | SCA-303: connection refused | SCA-302: ping through the front: connection refused"},
		{"load balancer silent", func(f *facts) { f.balancer, f.balErr = nil, refused }, "SCA-303: connection refused"},
		{"no master behind it", func(f *facts) {
			f.balancer.up = 0
			f.balancer.why = "n1 request is down"
			f.front = refused
		}, "SCA-302: 0 of 1 up; n1 request is down"},
		{"front does not answer", func(f *facts) { f.front = refused },
			"SCA-302: ping through the front: connection refused"},
		{"descriptors", func(f *facts) { f.balancer.fdFree = 10 }, "SCA-602: 10 of 1000 are free"},
		{"another program has the API's port", func(f *facts) { f.balancer.api = &apiFront{} },
			"SCA-230: nothing listens on port 8000: the load balancer does not say why"},
		{"the API's address is not there", func(f *facts) {
			f.balancer.api = &apiFront{unheard: "listen tcp 10.0.0.1:8000: cannot assign requested address"}
		},
			"SCA-230: nothing listens on port 8000: listen tcp 10.0.0.1:8000: cannot assign requested address"},
		{"another node has no API", func(f *facts) {
			f.balancer.api = &apiFront{
				listens: true,
				serving: []string{"n1"},
				down:    map[string]string{"other": "refused"},
			}
		}, ""},
		{"the front does not lead to our API", func(f *facts) {
			f.balancer.api = &apiFront{listens: true, down: map[string]string{"n1": "127.0.0.1:14507 is down: refused"}}
		}, "SCA-230: 127.0.0.1:14507 is down: refused"},
		{"the API starts behind the master",
			apiState(service.Info{State: service.Waiting, Since: now.Add(-time.Hour)}), ""},
		{"the API starts", apiState(service.Info{State: service.Starting, Since: now.Add(-slowAPI)}), ""},
		{"the API starts for long",
			apiState(service.Info{State: service.Starting, Since: now.Add(-3 * time.Minute)}),
			"SCA-220: salt-api has not answered since its start 3m ago | SCA-230: refused"},
		{"the API is up, and the load balancer does not know yet",
			apiState(service.Info{State: service.Running, Since: now.Add(-apiLags + time.Second)}), ""},
		{"the API is up, and the load balancer does not find it",
			apiState(service.Info{State: service.Running, Since: now.Add(-apiLags)}), "SCA-230: refused"},
		{"the API starts again after a crash",
			apiState(service.Info{State: service.Starting, Failures: 1, LastExit: "exit code 1", Since: now}),
			"SCA-220: salt-api: exit code 1 | SCA-230: refused"},
		{"a source is limited", func(f *facts) { f.balancer.limited = "203.0.113.9 has 20000 sessions" },
			"SCA-305: 203.0.113.9 has 20000 sessions"},
		{"disk low", disk(probe.Disk{Total: 1 << 30, Free: 1 << 26, FreePercent: 6, InodesPercent: 90}),
			"SCA-403 /var/lib/saltern: 64.0 MiB free of 1.0 GiB (6.0 %), 90.0 % of inodes free"},
		{"disk full", disk(probe.Disk{Total: 1 << 30, FreePercent: 0, InodesPercent: 90}),
			"SCA-402 /var/lib/saltern: "},
		{"inodes gone", disk(probe.Disk{Total: 1 << 30, FreePercent: 50, InodesPercent: 1}),
			"SCA-402 /var/lib/saltern: "},
		{"read-only", disk(probe.Disk{Total: 1, FreePercent: 50, InodesPercent: 50, ReadOnly: true}),
			"SCA-401 /var/lib/saltern: is mounted read-only"},
		{"disk hangs", func(f *facts) { f.hang = map[string]time.Duration{"/srv/cluster": time.Minute} },
			"SCA-401 /srv/cluster: has not answered for 1m"},
		{"disk error",
			func(f *facts) { f.disks[cfg.StorageDir()] = diskFact{err: errors.New("stale handle")} },
			"SCA-401 /srv/cluster: stale handle"},
		{"not made yet", func(f *facts) { f.disks[cfg.StorageDir()] = diskFact{err: os.ErrNotExist} }, ""},
		{"keys unreadable", func(f *facts) { f.keysErr = errors.New("permission denied") },
			"SCA-401 /srv/cluster/pki: permission denied"},
		{"pillars", said(func(m *control.Status) {
			m.PillarFaulty = 1
			m.PillarError = &control.PillarError{Minion: "web1", Text: "Rendering SLS 'x' failed", At: now}
		}), "SCA-206: minion web1: Rendering SLS 'x' failed (at 12:00 UTC)"},
		{"pillar file set aside", said(func(m *control.Status) {
			m.Problems = []control.Problem{{What: control.PillarCheckFault, Text: "/srv/pillar/a.sls gives other values"}}
		}), "SCA-234: /srv/pillar/a.sls gives other values"},
		{"database away", said(func(m *control.Status) {
			m.Problems = []control.Problem{
				{What: control.PostgresFault, Text: "it takes nothing"},
				{What: control.PostgresLoss, Text: "3 records"},
			}
		}), "SCA-235: it takes nothing | SCA-236: 3 records"},
		{"saved objects", said(func(m *control.Status) {
			m.Problems = []control.Problem{{What: control.SavedFault, Text: "permission denied"}}
		}), "SCA-244: permission denied"},
		{"pillars of two", said(func(m *control.Status) {
			m.PillarFaulty = 2
			m.PillarError = &control.PillarError{Minion: "a", Text: "x", At: now}
		}), "SCA-206: minion a (and 1 other): x (at 12:00 UTC)"},
		{"pillars of many", said(func(m *control.Status) {
			m.PillarFaulty = 9
			m.PillarError = &control.PillarError{Minion: "a", Text: "x", At: now}
		}), "SCA-206: minion a (and 8 others): x (at 12:00 UTC)"},
		{"master's problems", said(func(m *control.Status) {
			m.Problems = []control.Problem{
				{What: control.JobCacheFault, Text: "disk quota exceeded"},
				{What: control.KeyRotationFault, Text: "permission denied"},
			}
		}), "SCA-208: disk quota exceeded | SCA-209 key rotation: permission denied"},
		// Finding F4: a master whose disk has died was "silent", or nothing at all.
		{"master can keep no jobs, by its own words", func(f *facts) { f.Trouble = "input/output error" },
			"SCA-208: input/output error"},
		{"the same, and the load balancer knows", func(f *facts) {
			f.Trouble = "input/output error"
			f.balancer.up = 0
			f.balancer.unwell = map[string]string{"n1": "n1 request is unwell: it says why"}
			f.services[0].Since = now.Add(-time.Hour)
		}, "SCA-208: input/output error"},
		{"the load balancer knows first", func(f *facts) {
			f.balancer.up = 0
			f.balancer.unwell = map[string]string{"n1": "n1 request is unwell: it says why"}
			f.services[0].Since = now.Add(-time.Hour)
		}, "SCA-208: n1 request is unwell: it says why"},
		{"another master can keep no jobs",
			func(f *facts) { f.balancer.unwell = map[string]string{"n2": "n2 request is unwell: it says why"} },
			""},
		{"faults of git", said(func(m *control.Status) {
			for i, what := range []control.Fault{control.GitPillarFault, control.GitFilesFault,
				control.GitAwayFault, control.GitLoginFault, control.GitHostKeyFault, control.GitRefFault,
				control.GitSizeFault} {
				m.Problems = append(m.Problems, control.Problem{What: what, Text: fmt.Sprint("text ", i)})
			}
		}), "SCA-211: text 0 | SCA-213: text 1 | SCA-214: text 2 | SCA-215: text 3 | SCA-216: text 4 | SCA-217: text 5 | SCA-218: text 6"},
		{"master reports nothing any more", said(func(m *control.Status) {
			m.Written = now.Add(-time.Minute)
			m.Problems = []control.Problem{{What: control.JobCacheFault, Text: "old"}}
		}), "SCA-210: the last status is 1m old"},
		{"master is silent in every way", func(f *facts) {
			said(func(m *control.Status) { m.Written = now.Add(-time.Minute) })(f)
			f.services[0].State, f.services[0].Message = service.Failing, "no answer"
		}, "SCA-203: no answer"},
		{"report of a master that is gone", said(func(m *control.Status) {
			m.PID, m.Problems = 4, []control.Problem{{What: control.JobCacheFault, Text: "old"}}
		}), ""},
		{"report while no master runs", func(f *facts) {
			said(func(m *control.Status) {
				m.PID, m.Problems = 0, []control.Problem{{What: control.JobCacheFault, Text: "old"}}
			})(f)
			f.services[0].PID = 0
		}, ""},
		{"clock", func(f *facts) { no := false; f.clock = &no }, "SCA-601"},
		{"clock cannot be told", func(f *facts) { f.clock = nil }, ""},
		{"locked out", func(f *facts) { f.locked = true },
			"SCA-506: the account admin has neither a password nor an SSH key"},
		{"audit of the supervisor", func(f *facts) { f.Audit = "no space left on device" },
			"SCA-221: the supervisor: no space left on device"},
		{"audit of both", func(f *facts) {
			said(func(m *control.Status) {
				m.Problems = []control.Problem{{
					What: control.AuditFault,
					Text: "full",
				}}
			})(f)
			f.Audit = "full"
		}, "SCA-221: the supervisor: full"},
		{"audit of the master",
			said(func(m *control.Status) { m.Problems = []control.Problem{{What: control.AuditFault, Text: "full"}} }),
			"SCA-221: salt-master: full"},
		{"root", func(f *facts) { f.AsRoot = []string{"salt-master"} }, "SCA-502 salt-master"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthyFacts(&cfg)
			c.change(&f)
			var got []string
			for _, p := range findings(&cfg, f) {
				s := string(p.Code)
				if p.Subject != "" {
					s += " " + p.Subject
				}

				if p.Cause != "" {
					s += ": " + p.Cause
				}

				got = append(got, s)
			}

			want := strings.Split(c.want, " | ")
			if c.want == "" {
				want = nil
			}

			ok := len(got) == len(want)
			for i := range got {
				ok = ok && (got[i] == want[i] || strings.HasSuffix(want[i], ": ") && strings.HasPrefix(got[i], want[i]))
			}

			if !ok {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " | "), c.want)
			}
		})
	}
}

// Options that let anyone in are shown for as long as they are on.
func TestAttack31InsecureOptionsAreShown(t *testing.T) {
	cfg := settings.Default("n1")
	f := healthyFacts(&cfg)
	f.Insecure = []string{"open_mode", "auto_accept"}
	problems := status.NewBoard().Update(now, findings(&cfg, f))
	if len(problems) != 2 || problems[0].Code != status.InsecureOption || status.Worst(problems) != status.Degraded {
		t.Errorf("%+v", problems)
	}
}

// TestFromBalancerAPI: minions do without Salt's API, and its front is told of apart.
func TestFromBalancerAPI(t *testing.T) {
	port := func(front string, state lbproxy.State) lbproxy.PortStatus {
		return lbproxy.PortStatus{Frontend: front, State: state, Address: "192.0.2.1:14507", LastError: "refused"}
	}
	got := fromBalancer(lbproxy.Status{
		Frontends: []lbproxy.FrontendStatus{
			{Name: "publish", Mode: lbproxy.Publish},
			{Name: "api", Mode: lbproxy.API, Listen: []string{"0.0.0.0:8000"}},
		},
		Backends: []lbproxy.BackendStatus{
			{Name: "a", Ports: []lbproxy.PortStatus{port("publish", lbproxy.Up), port("api", lbproxy.Up)}},
			{Name: "b", Ports: []lbproxy.PortStatus{port("publish", lbproxy.Up), port("api", lbproxy.Down)}},
		},
	})

	want := &apiFront{
		listens: true,
		serving: []string{"a"},
		down:    map[string]string{"b": "192.0.2.1:14507 is down: refused"},
	}
	if got.up != 2 || len(got.down) != 0 || got.why != "" || !reflect.DeepEqual(got.api, want) {
		t.Errorf("%+v %+v", got, got.api)
	}
}

func TestFromBalancer(t *testing.T) {
	up := lbproxy.PortStatus{Frontend: "publish", State: lbproxy.Up}
	down := lbproxy.PortStatus{Frontend: "request", State: lbproxy.Down, LastError: "timeout"}
	unwell := lbproxy.PortStatus{Frontend: "request", State: lbproxy.Unwell, LastError: "it says why"}
	got := fromBalancer(lbproxy.Status{
		FDs: lbproxy.Descriptors{Budget: 5, Free: 4},
		Frontends: []lbproxy.FrontendStatus{
			{Mode: lbproxy.Publish, Sessions: 7},
			{Mode: lbproxy.Request, Sessions: 9, LimitedSources: 2,
				Limited: []lbproxy.LimitedSource{
					{Source: "203.0.113.9", Sessions: 4, Refused: 5},
					{Source: "203.0.113.10", Refused: 1},
				}},
		},
		Backends: []lbproxy.BackendStatus{
			{Name: "a", Ports: []lbproxy.PortStatus{up}},
			{Name: "b", Ports: []lbproxy.PortStatus{up, down}},
			{Name: "c"},
			{Name: "d", Maint: true, Ports: []lbproxy.PortStatus{down}},
			{Name: "e", Ports: []lbproxy.PortStatus{up, unwell}},
		},
	})

	want := balancerFacts{
		backends: 5,
		down:     map[string]string{"b": "b request is down: timeout"},
		up:       1,
		why:      "b request is down: timeout; d request is down: timeout; e request is unwell: it says why",
		unwell:   map[string]string{"e": "e request is unwell: it says why"},
		sessions: 7,
		fdBudget: 5,
		fdFree:   4,
		limited:  "203.0.113.9 has 4 sessions on the request port and was refused 5 times; 1 more",
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v", *got)
	}
}
