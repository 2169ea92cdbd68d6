package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"saltern/internal/printable"
)

// WriteJSON writes the document as JSON, for machines.
func WriteJSON(w io.Writer, d Document) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if d.Health == Unasked {
		return enc.Encode(unasked{Document: d, Front: unknownFront{Addresses: []string{}}})
	}
	return enc.Encode(d)
}

// WriteText writes the document for people: a summary in the first line, then the nodes, then the
// problems and what to do. It removes control characters from untrusted texts.
func WriteText(w io.Writer, d Document) error {
	return write(w, wording{d: d}.describe(nil))
}

// WriteNodes writes only the table of nodes.
func WriteNodes(w io.Writer, d Document) error {
	t := wording{d: d}
	t.addNodes()
	return write(w, t.lines)
}

func write(w io.Writer, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, clean(strings.Join(lines, "\n"))+"\n")
	return err
}

// clean removes control characters and trailing blanks from text.
func clean(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(printable.Clean(l), " ")
	}
	return strings.Join(lines, "\n")
}

// wording builds the description of a document line by line, for a number of columns (0: unlimited)
// and a brevity.
type wording struct {
	d     Document
	width int
	brief brevity
	lines []string
}

// describe returns all lines of the description. The lines of extra follow the addresses.
func (t wording) describe(extra []string) []string {
	t.addAnswer()
	t.lines = append(t.lines, extra...)
	if t.d.Health != Unconfigured {
		t.addNodes()
		t.addServices()
		t.addKeys()
	}
	t.addProblems()
	if t.d.Next != "" {
		t.addLine("Next")
		t.addParagraph("  ", t.d.Next)
	}
	return t.lines
}

func (t *wording) addLine(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// addFront adds the addresses at which minions and programs reach this node, unless the node was
// removed.
func (t *wording) addFront() {
	d := t.d
	if slices.ContainsFunc(d.Problems, func(p Problem) bool { return p.Code == NodeRemoved }) {
		return
	}

	ports := fmt.Sprintf("(ports %d and %d)", d.Front.PublishPort, d.Front.RequestPort)
	if v := d.Virtual; v != nil {
		on := "no node"
		if len(v.Nodes) > 0 {
			on = strings.Join(v.Nodes, " and ")
		}
		t.addParagraph("", fmt.Sprintf("minions use %s %s, the virtual address, now on %s", v.Address, ports, on))
	} else if len(d.Front.Addresses) > 0 {
		t.addParagraph("", fmt.Sprintf("minions use %s %s", strings.Join(d.Front.Addresses, ", "), ports))
	}

	if a := d.Front.API; a != nil {
		t.addParagraph("", fmt.Sprintf("Salt's API is on port %d there, %s", a.Port, a.served()))
	}
}

func (t *wording) addAnswer() {
	d := t.d
	step := d.SetupStep
	if d.Health != NotServing && d.Health != Unconfigured {
		step = nil // the node serves already, so that the step matters less
	}

	t.lines = append(t.lines, t.answerLine(step))
	if step != nil {
		text := "now: " + step.Name
		if step.Message != "" {
			text += ": " + step.Message
		}
		t.addParagraph("", text)
	}

	t.addFront()
	if d.Console != "" {
		t.addParagraph("", "browsers use "+d.Console)
	}
}

// words returns the text for the first line about a set-up. It returns "" if the health is enough:
// for example, a node whose master is down is still set up.
func (s Setup) words() string {
	switch s {
	case "", SetupNew, SetupWaiting, SetupReady, SetupDegraded:
		return ""
	case SetupDraining, SetupRemoved:
		return string(s)
	}
	return "set-up " + string(s)
}

// answerLine returns the first line, which sums up the status.
func (t *wording) answerLine(step *SetupStep) string {
	d := t.d
	text := strings.ToUpper(string(d.Health))
	if step != nil {
		text = fmt.Sprintf("SETTING UP  step %d of %d", step.Number, step.Of)
	}

	var parts []string
	if names := d.starting(); step == nil && len(names) > 0 {
		parts = append(parts, "starting: "+strings.Join(names, ", "))
	}

	if d.Cluster != "" {
		parts = append(parts, "cluster "+d.Cluster)
	}

	if words := d.Setup.words(); step == nil && words != "" {
		parts = append(parts, words)
	}

	switch n := len(d.Nodes); {
	case n == 1:
		parts = append(parts, "(1 node)")
	case n > 1:
		parts = append(parts, fmt.Sprintf("(%d nodes)", n))
	}

	if d.Serves() {
		words := "serving"
		if d.Arbiter() {
			words = "arbiter, at work"
		}
		parts = append(parts, words+" for "+Age(d.Time.Sub(*d.ServingSince)))
	}

	for _, p := range parts {
		if t.width == 0 || columns(text)+2+columns(p) <= t.width {
			text += "  " + p
		}
	}

	return text
}

// starting returns the names of the services that have started and have not answered yet.
func (d Document) starting() (names []string) {
	for _, s := range d.Services {
		if s.State == "starting" {
			names = append(names, s.Name)
		}
	}
	return names
}

// served returns a phrase that names the nodes whose salt-api answers.
func (a *FrontAPI) served() string {
	switch {
	case len(a.Nodes) == 0 && a.Starting:
		return "and is starting"
	case len(a.Nodes) == 0:
		return "served by no node"
	}
	return "served by " + strings.Join(a.Nodes, ", ")
}

// oneCell replaces the characters that would break a cell of a table.
var oneCell = strings.NewReplacer("\t", " ", "\n", " ", "\v", " ", "\f", " ")

// alignRows returns one line for each row, with aligned columns.
func alignRows(rows [][]string) []string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		for i, c := range r {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, oneCell.Replace(c))
		}
		fmt.Fprint(tw, "\n")
	}
	_ = tw.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func (t *wording) addNodes() {
	if len(t.d.Nodes) == 0 {
		return
	}

	well := 0 // ready nodes that are only counted
	fold := t.brief >= briefNodes && t.countReady() > fewNodes
	rows := [][]string{{"NODE", "ROLE", "STATE", "MASTER", "LB", "STORAGE", "MINIONS", "CLOCK", "ADDRESS", "VERSION"}}
	for _, n := range t.d.Nodes {
		if fold && n.State == "ready" && !n.This {
			well++
			continue
		}
		rows = append(rows, nodeRow(n, t.d.Time))
	}

	rows, everywhere, missing := fitColumns(rows, t.width)
	for _, l := range alignRows(rows) {
		t.lines = append(t.lines, clipWords(l, t.width)) // a last resort: fitColumns may not suffice
	}

	if well > 0 {
		t.addLine("  ... %d more that are ready", well)
	}

	if len(everywhere) > 0 {
		t.addParagraph("  on every node: ", strings.Join(everywhere, ", "))
	}

	if len(missing) > 0 {
		t.addParagraph("  no room for: ", strings.Join(missing, ", ")+" (applianced nodes)")
	}
}

// lastSeen is the beginning of the text that says when another node last sent anything.
const lastSeen = "last seen "

// fewNodes is the number of other nodes that are listed one by one even if there is little room.
const fewNodes = 3

// countReady counts the other nodes that are ready.
func (t *wording) countReady() (n int) {
	for _, node := range t.d.Nodes {
		if node.State == "ready" && !node.This {
			n++
		}
	}
	return n
}

func nodeRow(n Node, now time.Time) []string {
	minions := "-"
	if n.Minions != nil {
		minions = thousands(*n.Minions)
	}

	clock := n.Clock
	if n.LastSeen != nil {
		clock = lastSeen + Age(now.Sub(*n.LastSeen))
	}

	name := n.Name
	if n.This {
		name += "*"
	}

	return []string{name, n.Role, n.State, n.Master, n.Proxy, n.Storage, minions, clock,
		cmp.Or(n.Address, "-"), cmp.Or(n.Version, "-")}
}

func (t *wording) addServices() {
	if len(t.d.Services) == 0 {
		return
	}

	var rows [][]string
	var notes, running []string
	for _, s := range t.d.Services {
		note := s.Message
		if note == s.State {
			note = ""
			if s.LastExit != "" {
				note = "before that: " + s.LastExit
			}
		}

		if t.brief >= briefServices && s.State == "running" {
			running = append(running, s.Name)
			continue
		}

		pid := ""
		if s.PID > 0 {
			pid = fmt.Sprintf("pid %d", s.PID)
		}

		restarts := ""
		switch {
		case s.Restarts == 1:
			restarts = "1 restart"
		case s.Restarts > 1:
			restarts = fmt.Sprintf("%d restarts", s.Restarts)
		}

		rows = append(rows, []string{"  " + s.Name, s.State, Age(t.d.Time.Sub(s.Since)), pid, restarts, ""})
		notes = append(notes, note)
	}

	if len(running) > 0 {
		t.addParagraph("Services ", "running: "+strings.Join(running, ", "))
	} else {
		t.addLine("Services")
	}

	if len(rows) == 0 {
		return
	}

	for i, l := range alignRows(rows) {
		t.addParagraph(l, notes[i])
	}
}

func (t *wording) addKeys() {
	d := t.d
	if !d.Arbiter() {
		m := d.Minions
		t.addParagraph("Keys     ", fmt.Sprintf("%s accepted, %s pending, %s rejected, %s denied",
			thousands(m.Accepted), thousands(m.Pending), thousands(m.Rejected), thousands(m.Denied)))
	}

	if m := d.Master; m != nil && m.OldestRequestMillis >= slowRequest.Milliseconds() {
		t.addParagraph("Requests ",
			"the oldest has been at work for "+Age(time.Duration(m.OldestRequestMillis)*time.Millisecond))
	}

	if d.Master != nil {
		t.addPython(d.Master)
	}

	if d.Storage.Total > 0 {
		t.addParagraph("Storage  ",
			fmt.Sprintf("%s: %s of %s free (%.0f %%)", d.Storage.Path, Size(d.Storage.Free),
				Size(d.Storage.Total), d.Storage.FreePercent))
	}

	if d.Backup != nil {
		t.addParagraph("Backup   ", d.Backup.oneLine(d.Time))
	}

	if d.Upgrade != nil {
		t.addParagraph("Upgrade  ", d.Upgrade.oneLine(d.Time))
	}
}

func (t *wording) addProblems() {
	heading := ""
	for rest := t.d.Problems; len(rest) > 0; {
		left := rest

		// Problems with the same code are described once, with all their subjects.
		n := 1
		for n < len(rest) && rest[n].Code == rest[0].Code && rest[n].Severity == rest[0].Severity {
			n++
		}

		same := rest[:n]
		rest = rest[n:]
		h := "Problems"
		if same[0].Severity == Notice {
			h = "Notes"
		}

		if t.brief >= briefCodes && same[0].Severity == Notice {
			t.addCodesOfNotes(left)
			return
		}

		if h != heading {
			heading = h
			t.addLine("%s", h)
		}

		if t.brief >= briefProblems || t.brief >= briefNotes && same[0].Severity == Notice {
			t.addProblemInBrief(same)
			continue
		}

		t.addProblem(same)
	}
}

// addCodesOfNotes adds one line with the codes of the notes. The list of problems ends with the
// notes.
func (t *wording) addCodesOfNotes(notes []Problem) {
	var codes []string
	for _, p := range notes {
		if !slices.Contains(codes, string(p.Code)) {
			codes = append(codes, string(p.Code))
		}
	}
	t.addParagraph("Notes    ", strings.Join(codes, ", "))
}

// addProblem describes problems with the same code: each subject with its cause, then what to do.
func (t *wording) addProblem(same []Problem) {
	const indent = "          "
	lead := "  " + string(same[0].Code) + " "
	var next []string
	for _, p := range same {
		t.addParagraph(lead, fmt.Sprintf("%s (%s)", p.Title, lasting(t.d.Time, p.Since)))
		lead = strings.Repeat(" ", len(lead))
		if p.Cause != "" {
			t.addDetail(indent, strings.Split(p.Cause, "\n"))
		}

		if p.Next != "" && !slices.Contains(next, p.Next) {
			next = append(next, p.Next)
		}
	}

	for _, l := range next {
		t.addDetail(indent, []string{"next: " + l})
	}
}

// addProblemInBrief describes problems with the same code in one line.
func (t *wording) addProblemInBrief(same []Problem) {
	more := ""
	if len(same) > 1 {
		more = fmt.Sprintf(", and %d more", len(same)-1)
	}
	p := same[0]
	text := "  " + string(p.Code) + " " + p.Title + more
	if since := " (" + shortly(t.d.Time, p.Since) + ")"; columns(text+since) <= t.width {
		text += since
	}
	t.lines = append(t.lines, clipWords(text, t.width))
}

// shortly returns the text of lasting without the point in time.
func shortly(now, since time.Time) string {
	if d := now.Sub(since); d >= justNow {
		return "for " + Age(d)
	}
	return "just now"
}

// justNow is the time for which a change counts as new.
const justNow = 5 * time.Second

// lasting returns a text that says for how long, and since when, something has held.
func lasting(now, since time.Time) string {
	switch d := now.Sub(since); {
	case d < justNow:
		return "just now"
	case d >= 20*time.Hour:
		return fmt.Sprintf("for %s, since %s", Age(d), since.UTC().Format("2006-01-02 15:04 UTC"))
	default:
		return fmt.Sprintf("for %s, since %s", Age(d), since.UTC().Format("15:04 UTC"))
	}
}

// slowRequest is the age from which the text mentions a running request.
const slowRequest = 5 * time.Second

// Age formats a duration with one unit: 45s, 4m, 3h, 12d.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Size formats a number of bytes in binary units.
func Size(n uint64) string {
	const k = 1024
	f, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if f < k {
			break
		}
		f, unit = f/k, u
	}
	if unit == "B" || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, unit)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
