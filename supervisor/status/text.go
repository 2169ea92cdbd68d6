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

	"saltern/printable"
)

// WriteJSON prints the document for machines.
func WriteJSON(w io.Writer, d Document) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(d)
}

// WriteText prints the document for people: first line the answer, then the
// nodes, then what is wrong and what to do. Nothing that came from outside can reach the terminal as a control character.
func WriteText(w io.Writer, d Document) error {
	var b strings.Builder
	writeHead(&b, d)
	if d.Health != Unconfigured {
		writeNodes(&b, d)
		writeServices(&b, d)
		writeKeys(&b, d)
	}
	writeProblems(&b, d)
	if d.Next != "" {
		fmt.Fprintf(&b, "Next\n  %s\n", d.Next)
	}
	_, err := io.WriteString(w, clean(b.String()))
	return err
}

// WriteNodes prints the table of nodes alone.
func WriteNodes(w io.Writer, d Document) error {
	var b strings.Builder
	writeNodes(&b, d)
	_, err := io.WriteString(w, clean(b.String()))
	return err
}

// clean takes control characters and blanks at the ends of lines out of text.
func clean(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(printable.Clean(l), " ")
	}
	return strings.Join(lines, "\n")
}

// SetupPrefix begins the line of the text that tells the step under way.
const SetupPrefix = "now: "

func writeHead(b *strings.Builder, d Document) {
	step := d.SetupStep
	if d.Health != NotServing && d.Health != Unconfigured {
		step = nil // it serves already
	}
	if step != nil {
		fmt.Fprintf(b, "SETTING UP  step %d of %d", step.Number, step.Of)
	} else {
		b.WriteString(strings.ToUpper(string(d.Health)))
	}
	if d.Cluster != "" {
		fmt.Fprintf(b, "  cluster %s", d.Cluster)
	}
	if step == nil && d.Setup != SetupReady && d.Setup != "" {
		fmt.Fprintf(b, "  set-up %s", d.Setup)
	}
	if n := len(d.Nodes); n == 1 {
		b.WriteString("  (1 node)")
	} else if n > 1 {
		fmt.Fprintf(b, "  (%d nodes)", n)
	}
	if d.ServingSince != nil && d.Health != NotServing {
		words := "serving"
		if d.Arbiter() {
			words = "arbiter, at work"
		}
		fmt.Fprintf(b, "  %s since %s", words, Age(d.Time.Sub(*d.ServingSince)))
	}
	b.WriteString("\n")
	if step != nil {
		b.WriteString(SetupPrefix + step.Name)
		if step.Message != "" {
			b.WriteString(": " + step.Message)
		}
		b.WriteString("\n")
	}
	if v := d.Virtual; v != nil {
		on := "no node"
		if len(v.Nodes) > 0 {
			on = strings.Join(v.Nodes, " and ")
		}
		fmt.Fprintf(b, "minions use %s (ports %d and %d), the virtual address, now on %s\n", v.Address, d.Front.PublishPort, d.Front.RequestPort, on)
	} else if len(d.Front.Addresses) > 0 {
		fmt.Fprintf(b, "minions use %s (ports %d and %d)\n", strings.Join(d.Front.Addresses, ", "), d.Front.PublishPort, d.Front.RequestPort)
	}
	if a := d.Front.API; a != nil {
		by := "no node"
		if len(a.Nodes) > 0 {
			by = strings.Join(a.Nodes, ", ")
		}
		fmt.Fprintf(b, "Salt's API is on port %d there, served by %s\n", a.Port, by)
	}
	if d.Console != "" {
		fmt.Fprintf(b, "browsers use %s\n", d.Console)
	}
}

func table(b *strings.Builder, rows [][]string) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		for i, c := range r {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, strings.ReplaceAll(c, "\t", " "))
		}
		fmt.Fprint(tw, "\n")
	}
	_ = tw.Flush()
}

func writeNodes(b *strings.Builder, d Document) {
	if len(d.Nodes) == 0 {
		return
	}
	rows := [][]string{{"NODE", "ROLE", "STATE", "MASTER", "LB", "STORAGE", "MINIONS", "CLOCK", "ADDRESS", "VERSION"}}
	for _, n := range d.Nodes {
		minions := "-"
		if n.Minions != nil {
			minions = thousands(*n.Minions)
		}
		clock := n.Clock
		if n.LastSeen != nil {
			clock = "last seen " + Age(d.Time.Sub(*n.LastSeen))
		}
		name := n.Name
		if n.This {
			name += "*"
		}
		rows = append(rows, []string{name, n.Role, n.State, n.Master, n.Proxy, n.Storage, minions, clock, cmp.Or(n.Address, "-"), cmp.Or(n.Version, "-")})
	}
	table(b, rows)
}

func writeServices(b *strings.Builder, d Document) {
	if len(d.Services) == 0 {
		return
	}
	b.WriteString("Services\n")
	var rows [][]string
	for _, s := range d.Services {
		note := s.Message
		if note == s.State {
			note = ""
			if s.LastExit != "" {
				note = "before that: " + s.LastExit
			}
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
		rows = append(rows, []string{"  " + s.Name, s.State, Age(d.Time.Sub(s.Since)), pid, restarts, note})
	}
	table(b, rows)
}

func writeKeys(b *strings.Builder, d Document) {
	m := d.Minions
	if !d.Arbiter() {
		fmt.Fprintf(b, "Keys     %s accepted, %s pending, %s rejected, %s denied\n",
			thousands(m.Accepted), thousands(m.Pending), thousands(m.Rejected), thousands(m.Denied))
	}
	if m := d.Master; m != nil && m.OldestRequestMillis >= slowRequest.Milliseconds() {
		fmt.Fprintf(b, "Requests the oldest has been at work for %s\n", Age(time.Duration(m.OldestRequestMillis)*time.Millisecond))
	}
	if d.Storage.Total > 0 {
		fmt.Fprintf(b, "Storage  %s: %s free of %s (%.0f %%)\n", d.Storage.Path, Size(d.Storage.Free), Size(d.Storage.Total), d.Storage.FreePercent)
	}
	if d.Backup != nil {
		fmt.Fprintf(b, "Backup   %s\n", d.Backup.line(d.Time))
	}
	if d.Upgrade != nil {
		fmt.Fprintf(b, "Upgrade  %s\n", d.Upgrade.line(d.Time))
	}
}

func writeProblems(b *strings.Builder, d Document) {
	heading := ""
	for rest := d.Problems; len(rest) > 0; {
		// What is wrong in several places is told once, with all of them.
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
		if h != heading {
			heading = h
			b.WriteString(h + "\n")
		}
		lead := "  " + string(same[0].Code) + " "
		var next []string
		for _, p := range same {
			fmt.Fprintf(b, "%s%s (%s)\n", lead, p.Title, lasting(d.Time, p.Since))
			lead = strings.Repeat(" ", len(lead))
			if p.Cause != "" {
				for _, l := range strings.Split(p.Cause, "\n") {
					fmt.Fprintf(b, "          %s\n", l)
				}
			}
			if p.Next != "" && !slices.Contains(next, p.Next) {
				next = append(next, p.Next)
			}
		}
		for _, l := range next {
			fmt.Fprintf(b, "          next: %s\n", l)
		}
	}
}

// lasting says for how long something has been so.
func lasting(now, since time.Time) string {
	switch d := now.Sub(since); {
	case d < 5*time.Second:
		return "just now"
	case d >= 20*time.Hour:
		return fmt.Sprintf("for %s, since %s", Age(d), since.UTC().Format("2006-01-02 15:04 UTC"))
	default:
		return fmt.Sprintf("for %s, since %s", Age(d), since.UTC().Format("15:04 UTC"))
	}
}

// slowRequest is how old a request must be to be worth a line.
const slowRequest = 5 * time.Second

// Age words a duration with one unit: 45s, 4m, 3h, 12d.
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

// Size words a number of bytes in binary units.
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
