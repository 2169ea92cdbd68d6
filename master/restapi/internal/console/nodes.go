package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"saltern/internal/control"
	"saltern/master/value"
)

// machines is the state of the nodes for the first page.
type machines struct {
	control.Appliance
	Health  string // class in the style sheet
	Space   string
	Holders string
	Faults  []fault
	Folded  []fault // further faults
	Plots   []plot
	Unasked []string // nodes without a metrics history, each with the reason
	Actions bool     // at least one action is permitted
	// ServicesRun means that all services of the node run, so that the page folds them.
	ServicesRun bool
}

// nodeActions returns the actions for a node: the value in forms, and the function.
func nodeActions() []option {
	return []option{{"drain", "appliance.drain"}, {"undrain", "appliance.undrain"}, {"restart", "appliance.restart"}}
}

// services returns the services that the user may restart: the value in forms, and a text.
func services() []option {
	return []option{{"master", "the master"}, {"lb", "the balancer"}, {"api", "the API, which serves this page"}}
}

func wordOf(list []option, chosen string) string {
	for _, o := range list {
		if o.Value == chosen {
			return o.Word
		}
	}
	return ""
}

// appliance asks the supervisor, through the master, for the state of the nodes.
func appliance(ctx context.Context, v *visit) (a control.Appliance, err error) {
	err = typedAnswer(ctx, v, "appliance.status", &a)
	a = a.Clean()
	// sort by name, because each node lists itself first
	slices.SortFunc(a.Nodes, func(x, y control.NodeState) int { return strings.Compare(x.Name, y.Name) })
	return a, err
}

// typedAnswer calls a runner without arguments and decodes its answer into the variable that into
// points to, of a type of package control.
func typedAnswer(ctx context.Context, v *visit, fun string, into any) error {
	got, err := v.runCommand(ctx, "runner", fun)
	if err != nil {
		return err
	}
	if _, ok := got.(*value.Map); !ok {
		return &Refusal{http.StatusBadGateway, "The nodes cannot be asked: " + briefName(value.StrMax(got, maxName))}
	}
	text, _ := value.JSON{Indent: -1}.Text(got)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return &Refusal{http.StatusBadGateway, "The nodes cannot be asked: their answer cannot be read."}
	}
	return nil
}

// machines returns the state of the nodes. It returns nil and the reason, why, when the state
// cannot be read.
func (c *Console) machines(ctx context.Context, v *visit) (m *machines, why string, err error) {
	a, err := appliance(ctx, v)
	if err != nil {
		return nil, toldRefusal("Nodes", err), otherThanRefusal(err)
	}

	m = &machines{
		Appliance: a,
		Health:    map[string]string{"healthy": "ok", "degraded": "differs"}[a.Health],
		Space:     spaceWord(a.Storage),
		Holders:   strings.Join(a.Holders, ", "),
	}
	if m.Health == "" {
		m.Health = "failed"
	}
	m.Faults = c.faultsOf(a.Findings)
	if n := shownFaults; len(m.Faults) > n {
		m.Faults, m.Folded = m.Faults[:n], m.Faults[n:]
	}

	m.ServicesRun = !slices.ContainsFunc(a.Services, func(s control.Service) bool { return s.State != "running" })
	for _, o := range nodeActions() {
		m.Actions = m.Actions || v.mayCall("wheel", o.Word)
	}

	if !v.mayCall("runner", "appliance.course") {
		return m, "History of the nodes: external_auth has to permit the runner appliance.course.", nil
	}

	var course control.Course
	if err := typedAnswer(ctx, v, "appliance.course", &course); err != nil {
		return m, toldRefusal("History of the nodes", err), otherThanRefusal(err)
	}

	course = course.Clean()
	m.Plots = plotsOf(course, c.cfg.Now())
	for _, n := range slices.Sorted(maps.Keys(course.Unasked)) {
		m.Unasked = append(m.Unasked, n+": "+course.Unasked[n])
	}

	return m, "", nil
}

// toldRefusal returns the text of a refusal for a page. otherThanRefusal returns err, or nil if err
// is a refusal.
func toldRefusal(action string, err error) string { return action + ": " + err.Error() }

func otherThanRefusal(err error) error {
	if _, ok := errors.AsType[*Refusal](err); ok {
		return nil
	}
	return err
}

func spaceWord(s control.Space) string {
	if s.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s free (%.0f %%)", bytesWord(float64(s.Free)), bytesWord(float64(s.Total)),
		float64(s.Free)/float64(s.Total)*100)
}

// bytesWord returns a text for a number of bytes.
func bytesWord(n float64) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			return shortNumber(n) + " " + u
		}
		n /= 1024
	}
	return shortNumber(n) + " TiB"
}

type nodePage struct {
	Action   string
	Node     control.NodeState
	Services []option
	Service  string
}

// nodeChoice reads the action and the node from a form. It refuses a node that is not in the
// cluster.
func nodeChoice(ctx context.Context, v *visit, q url.Values) (p nodePage, err error) {
	p = nodePage{Action: q.Get("do"), Services: services(), Service: q.Get("service")}
	fun := wordOf(nodeActions(), p.Action)
	switch {
	case fun == "":
		return p, &Refusal{http.StatusBadRequest, "There is no such thing to do with a node."}
	case !control.PlainName(q.Get("node")):
		return p, &Refusal{http.StatusBadRequest, "That is not the name of a node."}
	case !v.mayCall("wheel", fun):
		return p, &Refusal{http.StatusForbidden,
			"You may not do that: external_auth does not permit wheel " + fun + " to you."}
	}

	a, err := appliance(ctx, v)
	if err != nil {
		return p, err
	}

	i := slices.IndexFunc(a.Nodes, func(n control.NodeState) bool { return n.Name == q.Get("node") })
	if i < 0 {
		return p, &Refusal{http.StatusNotFound, "There is no such node. It may have been removed meanwhile."}
	}

	p.Node = a.Nodes[i]
	return p, nil
}

// confirmNode shows the chosen action and asks for confirmation.
func confirmNode(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, err := nodeChoice(ctx, v, v.query)
	if err != nil {
		return Answer{}, err
	}
	return c.render(v, "node", http.StatusOK,
		page{Title: strings.ToUpper(d.Action[:1]) + d.Action[1:] + " " + d.Node.Name, Data: d})
}

// changeNode performs the confirmed action.
func changeNode(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d, err := nodeChoice(ctx, v, form)
	if err != nil {
		return Answer{}, err
	}

	kv := []any{"node", d.Node.Name}
	if d.Action == "restart" {
		if wordOf(services(), d.Service) == "" {
			return Answer{}, &Refusal{http.StatusBadRequest, "Choose a service of the node."}
		}
		kv = append(kv, "service", d.Service)
	}

	fun := wordOf(nodeActions(), d.Action)
	got, err := v.runCommand(ctx, "wheel", fun, kv...)
	if err != nil {
		return Answer{}, err
	}

	if m, _ := got.(*value.Map); m.Map("data").Value("success") != true {
		text := strings.TrimPrefix(value.StrMax(wheelReturn(got), maxName), "Exception occurred in wheel "+fun+": ")
		return Answer{}, &Refusal{http.StatusConflict, "That was not done: " + briefName(text)}
	}

	return c.redirect("/", url.Values{"done": {d.Action}, "node": {d.Node.Name}, "service": {d.Service}}), nil
}

// nodeDoneNotice returns a sentence about the last action. It checks each text that it takes from
// the query.
func nodeDoneNotice(q url.Values) string {
	node := q.Get("node")
	if !control.PlainName(node) {
		return ""
	}

	switch q.Get("done") {
	case "drain":
		return node + " gets no new minions any more; those that it has move to other nodes within about two minutes."
	case "undrain":
		return node + " gets minions again."
	case "restart":
		if w := wordOf(services(), q.Get("service")); w != "" {
			w, _, _ = strings.Cut(w, ",")
			return "The restart of " + w + " on " + node + " begins in a moment."
		}
	}

	return ""
}
