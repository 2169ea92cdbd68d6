package browser

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"saltern/internal/control"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// three is what differs from the cluster of the console's test.
type three struct {
	tree    map[string]string // of files for minions
	options map[string]any    // of the masters
	answers map[string]any    // for the set-up of each node
}

// cluster makes three nodes with the API.
func cluster(t *testing.T, net *lab.Network, with three) []*lab.Appliance {
	t.Helper()
	shared := lab.Dir(t)
	lab.WriteTree(t, filepath.Join(shared, "srv/salt"), with.tree)
	options := map[string]any{
		"timeout":                 5,
		"gather_job_timeout":      5,
		"sharedsecret":            "right",
		"saltern_renderer_python": filepath.Join(lab.Venv(t, lab.Newest), "python3"),
		"external_auth": map[string]any{"sharedsecret": map[string]any{
			"alice": []any{".*", "@runner", "@wheel", "@jobs"},
			"vera":  []any{map[string]any{"@runner": []any{"presence.minions", "appliance.*"}}},
		}},
		"netapi_enable_clients": []string{"local", "local_async", "runner", "wheel"},
		"nodegroups":            map[string]any{"front": "web*"},
	}

	maps.Copy(options, with.options)
	var nodes []*lab.Appliance
	for i := 1; i <= 3; i++ {
		all := map[string]any{
			"secret": lab.ApplianceSecret,
			"api":    true,
			"settings": map[string]any{
				"limits": map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1},
				"master": map[string]any{"options": options},
			},
		}

		all["mode"] = "form"
		if i > 1 {
			all["mode"], all["peers"] = "join", []string{nodes[0].Addr}
		}

		maps.Copy(all, with.answers)
		nodes = append(nodes, lab.NewAppliance(t, net, i, shared, all))
	}

	for i, n := range nodes {
		lab.WriteTree(t, filepath.Join(n.Dir, "data/log"), map[string]string{"course.json": day(t, i)})
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	for _, n := range nodes {
		lab.Eventually(t, time.Minute, "the console of "+n.Name, func() error {
			c := http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			}}

			res, err := c.Get(console(n) + "/login")
			if err == nil {
				err = res.Body.Close()
			}

			return err
		})
	}

	return nodes
}

// day is what a node is said to have done until now: points as its supervisor keeps them.
func day(t *testing.T, node int) string {
	t.Helper()
	var points []control.Point
	began := time.Now().Truncate(control.PointEvery).Add(-24 * time.Hour)
	for i := range control.MaxPoints {
		wave := math.Sin(float64(i)/23 + float64(node))
		p := control.Point{At: began.Add(time.Duration(i) * control.PointEvery)}
		minions, returns, latency, memory := math.Round(40+5*wave)+
			float64(3*node), 3+2*wave*wave, 1.5+float64(i%7)/4+float64(node), (90+4*wave+float64(10*node))*(1<<20)
		p.Returns = &returns
		p.Latency = &latency
		p.Memory = &memory

		if node != 1 || i < 120 || i > 140 {
			p.Minions = &minions
		}

		points = append(points, p)
	}

	text, err := json.Marshal(points)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func console(n *lab.Appliance) string { return "https://" + n.Addr + ":8000/console" }

func (b *tab) logIn(user string) {
	b.t.Helper()
	for tries := 0; ; tries++ {
		b.see("/", "#username")
		err := b.try(20*time.Second, typed("#username", user), typed("#password", "right"),
			click(`form.login button[type=submit]`), chromedp.WaitReady(chromedp.CSS("#pages")))
		// Chromium gives up a form that it sends while the interface of another test comes.
		if err == nil || tries == 5 || !strings.HasPrefix(get[string](b, `location.href`), "chrome-error:") {
			break
		}
	}
	b.do("log in", chromedp.WaitReady(chromedp.CSS("#pages")))
	b.openMenu()
}

// openMenu shows the pages and the log-out, which a small screen folds.
func (b *tab) openMenu() {
	b.t.Helper()
	if get[bool](b, `getComputedStyle(document.querySelector("#menu")).display != "none"`) {
		b.do("open the menu", click("#menu"), there("#pages"))
	}
}

// until opens a page again and again until it says something.
func (b *tab) until(path, selector, want string) {
	b.t.Helper()
	lab.Eventually(b.t, 90*time.Second, fmt.Sprintf("%q on %s", want, path), func() error {
		if err := b.try(10*time.Second, visit(b.base+path), there(selector)); err != nil {
			return err
		}
		if s := get[string](b, shown); !strings.Contains(s, want) {
			return fmt.Errorf("page: %.1500s", s)
		}
		return nil
	})
}

// row is the line of a node in the table of nodes.
func (b *tab) row(node string) string {
	b.t.Helper()
	return get[string](b,
		fmt.Sprintf(`[...document.querySelectorAll("section[aria-labelledby=nodes] tr")].filter(r => r.querySelector("th[scope=row]")?.innerText.startsWith(%q)).map(r => r.innerText).join()`,
			node))
}

// act does something with a node, with its page to confirm.
func (b *tab) act(label, service, says string) {
	b.t.Helper()
	b.see("/", "#nodes")
	b.do(label, click(fmt.Sprintf(`button[aria-label=%q]`, label)), there(`main form[method=post] button[type=submit]`))
	if service != "" {
		get[string](b, fmt.Sprintf(`document.querySelector("#service").value = %q`, service))
	}
	b.do("confirm", click(`main form[method=post] button[type=submit]`), there(".notice"))
	b.has(says)
}

// TestThreeNodes has an administrator care for a cluster of three nodes, of which one is lost on the way, and
// comes back. Meanwhile an operator, an auditor and others do a day's work at the virtual address, which that
// node had.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	axe := axe(t)
	net := lab.NewNetwork(t, "brw", "10.91")
	nodes := cluster(t, net, three{
		tree: map[string]string{
			"top.sls":    "base: {'*': [broken]}\n",
			"broken.sls": broken,
			"hello.sls":  "hello:\n  test.succeed_with_changes: []\n",
		},
		options: map[string]any{
			"external_auth":         usersOfDay(),
			"netapi_enable_clients": []string{"local", "local_async", "runner", "runner_async", "wheel"},
		},
		answers: map[string]any{"front": []string{"0.0.0.0"}},
	})

	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	net.Move(t, n3.Addr)
	n1.StartMinion(t, "web1", lab.Newest)
	n2.StartMinion(t, "db1", lab.Newest)
	b := open(t, console(n1), 1280, 800)

	t.Log("1: log in and see how the nodes are")
	b.logIn("alice")
	b.until("/", "#nodes", "n3")
	for _, n := range nodes {
		if r := b.row(n.Name); !strings.Contains(r, "ready") || !strings.Contains(r, "Drain") {
			t.Errorf("%s: %q", n.Name, r)
		}
	}

	b.accessible(axe, "overview")
	if n := get[int](b, `document.querySelectorAll("svg.plot polyline").length`); n < 12 {
		t.Errorf("%d lines in the plots", n)
	}

	get[int](b, `document.querySelector("#day").scrollIntoView(), 0`)
	b.picture("console-day")
	b.clean("overview")

	t.Log("2: accept two keys")
	lab.Eventually(t, time.Minute, "two keys wait", func() error {
		b.see("/keys?state=minions_pre&q=*1", ".tabs")
		if n := get[int](b, `document.querySelectorAll("input[name=id]").length`); n != 2 {
			return fmt.Errorf("%d keys", n)
		}
		return nil
	})

	b.do("accept all that match", click(`button[name=all][value=accept]`), there(`main form[method=post] button.main`),
		click(`main form[method=post] button[type=submit]`), there(".notice"))
	b.has("2 keys accepted.")
	n1.Ping(t, 90*time.Second, "web1", "db1")

	t.Log("3: find why a highstate failed")
	b.run("*", "", "state.apply", "")
	b.has("1 failed")
	if why := get[string](b, `document.querySelector("details.failed[open]").innerText`); !strings.Contains(why, "the web server is not there") {
		t.Errorf("the state that failed says %q", why)
	}

	t.Log("4: a node is lost; what to do stands there")
	began := time.Now()
	d := &day3{
		t:       t,
		axe:     axe,
		address: "https://" + net.Virtual() + ":8000/console",
		admin:   b,
		node:    n1,
		lose:    func() { n3.Kill(); net.Move(t, n1.Addr) },
		loss:    chooseLoss(t),
	}
	operator := d.enter("otto", 390)
	d.operate(operator)
	took := time.Since(began)
	b.until("/", "#nodes", "node n3 is unreachable")
	b.has("Next: applianced ping n3")
	lab.Eventually(t, time.Minute, "n3 is lost", func() error {
		b.see("/", "#nodes")
		if r := b.row("n3"); !strings.Contains(r, "unreachable") {
			return fmt.Errorf("%q", r)
		}
		return nil
	})

	b.accessible(axe, "overview with a lost node")
	get[int](b, `document.querySelector("#nodes").scrollIntoView(), 0`)
	b.picture("console-nodes")

	began = time.Now()
	d.prepare()
	d.runSaved(d.enter("sam", 390))
	d.inspect(d.enter("paula", 1280))
	d.endLogIn(operator)
	t.Logf("the work of the day took %.0f s", (took + time.Since(began)).Seconds())

	t.Log("5: run a state on a node group")
	b.run("front", "nodegroup", "state.apply", "hello")
	b.has("web1 changed")
	if get[bool](b, `document.querySelector("#live").innerText.includes("db1")`) {
		t.Error("db1 is not of the group")
	}

	t.Log("6: drain another node")
	b.act("Drain n2", "", "n2 gets no new minions any more")
	if r := b.row("n2"); !strings.Contains(r, "drained") {
		t.Errorf("%q", r)
	}

	t.Log("7: restart the master there")
	before := pid(t, n2)
	b.see("/nodes/confirm?do=restart&node=n2", "#service")
	b.accessible(axe, "restart")
	b.act("Restart a service of n2", "master", "The restart of the master on n2 begins")
	lab.Eventually(t, time.Minute, "another process", func() error {
		if p := pid(t, n2); p == before || p == 0 {
			return fmt.Errorf("still %d", p)
		}
		return nil
	})

	t.Log("8: undrain it")
	b.until("/", "#nodes", "n2") // for a second after the restart a page may say that the master is away
	b.act("Undrain n2", "", "n2 gets minions again")
	if r := b.row("n2"); strings.Contains(r, "drained") {
		t.Errorf("%q", r)
	}

	n1.Ping(t, 90*time.Second, "web1", "db1")

	t.Log("9: a viewer looks, and does nothing; his session ends on all nodes with the log-out")
	v := open(t, console(n2), 390, 844)
	v.logIn("vera")
	v.until("/", "#nodes", "n1")

	if get[int](v, `document.querySelectorAll("form.acts").length`) > 0 {
		t.Error("a viewer has buttons")
	}

	v.accessible(axe, "overview at 390 pixels")
	if wide := get[int](v, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the overview is %d pixels wide", wide)
	}

	get[int](v, `document.querySelector("#nodes").scrollIntoView(), 0`)
	v.picture("console-nodes-390")
	get[int](v, `document.querySelector("#day").scrollIntoView(), 0`)
	v.picture("console-day-390")
	v.revoked(n1, n2)

	t.Log("10: the node comes back, and who did what is written down")
	n3.Launch(t)
	n3.WaitReady(t, 3)
	lab.Eventually(t, time.Minute, "n3 is back", func() error {
		b.see("/", "#nodes")
		if r := b.row("n3"); !strings.Contains(r, "ready") {
			return fmt.Errorf("%q", r)
		}
		return nil
	})

	log := n1.Applianced(t, "audit", "--since", "1h").Out
	for _, want := range []string{"node.drain", "node.undrain", "service.restart", "alice"} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit record lacks %s:\n%s", want, log)
		}
	}
}

// run runs a function on the console's page for it, and waits for its job.
func (b *tab) run(target, kind, fun, arg string) {
	b.t.Helper()
	b.see("/run", "#fun")
	b.do("run "+fun, typed("#tgt", target), typed("#fun", fun))
	if kind != "" {
		get[string](b, fmt.Sprintf(`document.querySelector("#type").value = %q`, kind))
	}
	if arg != "" {
		b.do("arguments", typed("#arg", arg))
	}
	b.do("run", click(`form.run button.main`), there("#live"))
}

// pid is that of a node's master.
func pid(t *testing.T, n *lab.Appliance) int {
	t.Helper()
	d, _ := n.Status(t) // its master may be away just now
	for _, s := range d.Services {
		if s.Name == status.MasterService && s.State == "running" {
			return s.PID
		}
	}
	return 0
}

// revoked logs out, and holds that the session is good at no node any more.
func (b *tab) revoked(nodes ...*lab.Appliance) {
	b.t.Helper()
	b.openMenu()
	cookies, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{})
	if err != nil || len(cookies.Cookies) == 0 {
		b.t.Fatalf("no cookie: %v", err)
	}

	b.do("log out", click("form.who button"), there("#username"))
	for _, n := range nodes {
		for _, k := range cookies.Cookies {
			req, err := http.NewRequest(http.MethodGet, console(n)+"/", nil)
			if err != nil {
				b.t.Fatal(err)
			}

			req.AddCookie(&http.Cookie{Name: k.Name, Value: k.Value})
			c := http.Client{
				Transport: &http.Transport{
					DisableKeepAlives: true,
					TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
				},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}

			lab.Eventually(b.t, 15*time.Second, "the session is over at "+n.Name, func() error {
				res, err := c.Do(req)
				if err != nil {
					return err
				}

				_ = res.Body.Close()
				if res.StatusCode != http.StatusSeeOther || !strings.HasSuffix(res.Header.Get("Location"), "/login") {
					return fmt.Errorf("%s", res.Status)
				}

				return nil
			})
		}
	}
}
