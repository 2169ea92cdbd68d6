package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/test/lab"
)

// site3 is a cluster of three nodes that a browser reaches by their virtual address.
type site3 struct {
	net   *lab.Network
	nodes []*lab.Appliance
	sent  int // events
}

// TestSaltGUIThreeNodes has SaltGUI use the virtual address of three nodes, through the
// load balancer. While its page of events is open, a node is lost that it does not use,
// then the one that its session is on, then the one that has the address.
//
// What is tolerated: when a node is lost that SaltGUI does not use, nothing; the page
// goes on without being loaded again. When its own node is lost, its stream of events ends, for
// which the browser's console may have one line, and SaltGUI, which never opens a second one, has to be
// loaded again. After that nothing: the log-in is good, all pages are there, events come.
func TestSaltGUIThreeNodes(t *testing.T) {
	net := lab.NewNetwork(t, "gui", "10.92")
	section := saltGUI(t, "web1", "db1")
	s := &site3{net: net, nodes: cluster(t, net, three{
		tree: guiTree,
		options: map[string]any{
			"rest_cherrypy":         section,
			"saltgui_templates":     map[string]any{},
			"netapi_enable_clients": []string{"local", "local_async", "runner", "runner_async", "wheel", "wheel_async"},
		},
		answers: map[string]any{"front": []string{"0.0.0.0"}, "virtual_address": net.Virtual()},
	})}

	minions := []string{"web1", "db1"}
	for _, id := range minions {
		lab.StartMinionAt(t, id, lab.Newest, net.Virtual())
	}

	first := s.holder(t)
	lab.Eventually(t, time.Minute, "both keys are accepted", func() error {
		first.Tool(t, "salt-key", "-A", "-y")
		if r := first.Tool(t, "salt-key", "-l", "acc"); !strings.Contains(r.Out, "web1") ||
			!strings.Contains(r.Out, "db1") {
			return fmt.Errorf("%s%s", r.Out, r.Err)
		}
		return nil
	})

	first.Ping(t, 2*time.Minute, minions...)

	b := openGUI(t, "https://"+net.Virtual()+":8000", minions...)
	b.tour("", minions...)
	b.plays()
	b.stays(s)

	t.Log("a node is lost that the browser does not use")
	holder, on := s.holder(t), s.session(t)
	t.Logf("%s has the address, the session is on %s", holder.Name, on.Name)
	other := s.nodes[slices.IndexFunc(s.nodes, func(n *lab.Appliance) bool { return n != holder && n != on })]
	get[bool](b, `window.same = true`)
	other.Kill()
	s.live(b, other)
	s.back(t, other)
	s.live(b)

	if !get[bool](b, `window.same === true`) {
		t.Error("the page was loaded again")
	}

	b.clean("the loss of another node")

	t.Log("the node is lost that the session is on")
	s.lose(b, on)
	b.tour("after the loss of its node:", minions...)
	if on != holder {
		s.back(t, on)
		t.Log("the node is lost that has the address")
		b.plays()
		s.live(b)
		holder = s.holder(t)
		s.lose(b, holder)
		b.tour("after the loss of the address:", minions...)
	}

	get[bool](b, `history.pushState({}, "", "/app#logout"); dispatchEvent(new PopStateEvent("popstate"))`)
	b.do("log out", there("#login-button"))
	b.clean("log-out")
}

// lose kills a node while the page of events is open, and holds that the page, loaded
// once more, goes on where another node serves it.
func (s *site3) lose(b *tab, n *lab.Appliance) {
	b.t.Helper()
	began := time.Now()
	n.Kill()
	s.net.Forget(n.Addr, s.net.Virtual())
	lab.Eventually(b.t, 2*time.Minute, "the stream of events ends", func() error {
		if at := get[int](b, `window.stream.readyState`); at != 2 {
			return fmt.Errorf("it is in state %d", at)
		}
		return nil
	})

	b.t.Logf("the stream has ended after %.1f s", time.Since(began).Seconds())
	b.cut(s.net.Virtual())
	lab.Eventually(b.t, time.Minute, "SaltGUI is there again", func() error {
		return b.try(10*time.Second, visit(b.base+"/app?again="+n.Name+"#events"), there("#page-events"))
	})
	b.t.Logf("the page was there again after %.1f s", time.Since(began).Seconds())
	b.plays()
	s.live(b, n)
	b.picture("saltgui-lost")
	b.clean("events after the loss of " + n.Name)

	for _, other := range s.nodes {
		if other != n {
			other.Ping(b.t, 3*time.Minute, "web1", "db1")
			break
		}
	}
}

// cut holds that the browser complained of nothing but one end of the stream of events.
func (b *tab) cut(addr string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Logf("the browser's console: %q", b.faults)
	want := func(f string) bool {
		return strings.Contains(f, "net::ERR_") && strings.HasSuffix(f, "https://"+addr+":8000/events")
	}
	if len(b.faults) > 1 || len(b.faults) == 1 && !want(b.faults[0]) {
		b.t.Errorf("the browser's console has more than the end of the stream: %q", b.faults)
	}
	b.faults = nil
}

// plays has the page of events show them: once loaded it is paused.
func (b *tab) plays() {
	b.t.Helper()
	const paused = `[...document.querySelectorAll("#page-events .small-button-for-click")].filter(e => e.offsetParent && e.innerText.startsWith("\u2bc8"))`
	get[int](b, paused+`.map(e => e.click()).length`)
	if get[int](b, paused+`.length`) != 0 ||
		!get[bool](b, `document.querySelector("#page-events").innerText.includes("waiting for")`) {
		b.t.Fatal("the page of events is still paused")
	}
	lab.Eventually(b.t, time.Minute, "the stream of events is open", func() error {
		if at := get[int](b, `window.stream.readyState`); at != 1 {
			return fmt.Errorf("it is in state %d", at)
		}
		return nil
	})
}

// live holds that what each node tells is on the page of events, but for those that are lost.
func (s *site3) live(b *tab, lost ...*lab.Appliance) {
	b.t.Helper()
	for _, n := range s.nodes {
		if slices.Contains(lost, n) {
			continue
		}
		s.sent++
		tag := fmt.Sprintf("still/here/%d/%s", s.sent, n.Name)
		if r := n.Tool(b.t, "salt-run", "event.send", tag); r.Code != 0 {
			b.t.Fatalf("%s: %+v", tag, r)
		}
		b.has(tag)
	}
}

// stays holds that the page of events goes on for as many minutes as SALTERN_MINUTES
// says: longer than sessions of CherryPy last is what people do.
func (b *tab) stays(s *site3) {
	b.t.Helper()
	minutes, _ := strconv.Atoi(os.Getenv("SALTERN_MINUTES"))
	for i := range minutes {
		s.live(b)
		b.clean(fmt.Sprintf("events for %d minutes", i))
		b.t.Logf("%d minutes; the page's heap has %d kB", i,
			int(get[float64](b, "performance.memory.usedJSHeapSize")/1024))
		time.Sleep(time.Minute)
	}
	s.live(b)
	b.clean("events")
}

// back starts a node again that was lost.
func (s *site3) back(t *testing.T, n *lab.Appliance) {
	t.Helper()
	n.Launch(t)
	for _, n := range s.nodes {
		n.WaitReady(t, len(s.nodes))
	}
}

// holder is the node that has the virtual address.
func (s *site3) holder(t *testing.T) (is *lab.Appliance) {
	t.Helper()
	lab.Eventually(t, time.Minute, "one node has the virtual address", func() error {
		d, err := s.nodes[0].Status(t)
		if err != nil || d.Virtual == nil || len(d.Virtual.Nodes) != 1 {
			return fmt.Errorf("%+v: %w", d.Virtual, err)
		}
		is = s.nodes[slices.IndexFunc(s.nodes, func(n *lab.Appliance) bool { return n.Name == d.Virtual.Nodes[0] })]
		return nil
	})
	return is
}

// session is the node to which the load balancer leads the browser.
func (s *site3) session(t *testing.T) *lab.Appliance {
	t.Helper()
	var d lbproxy.Status
	if r := s.holder(t).Applianced(t, "lb", "status", "--json"); json.Unmarshal([]byte(r.Out), &d) != nil {
		t.Fatalf("%+v", r)
	}

	var on []*lab.Appliance
	for _, back := range d.Backends {
		for _, p := range back.Ports {
			if p.Frontend == "api" && p.Sessions > 0 {
				on = append(on,
					s.nodes[slices.IndexFunc(s.nodes, func(n *lab.Appliance) bool { return n.Addr == back.Address })])
			}
		}
	}

	if len(on) != 1 {
		t.Fatalf("connections of the API to %d nodes: %+v", len(on), d.Backends)
	}

	return on[0]
}
