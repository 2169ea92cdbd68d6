package storage

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"saltern/supervisor/status"
)

// WriteText writes a state as text for an administrator.
func WriteText(w io.Writer, s State) {
	head := "READY"
	if !s.Ready {
		head = "NOT READY"
	}

	fmt.Fprintf(w, "%s  the shared volume", head)
	if s.Waiting != "" {
		fmt.Fprintf(w, " waits for %s", s.Waiting)
	}

	fmt.Fprintln(w)
	if s.Space.Total > 0 {
		fmt.Fprintf(w, "space    %s free of %s\n", status.Size(s.Space.Free), status.Size(s.Space.Total))
	}

	if s.Doing != "" {
		fmt.Fprintf(w, "now      %s\n", s.Doing)
	}

	if s.Leader != "" {
		fmt.Fprintf(w, "changes  are made by %s\n", s.Leader)
	}

	heal := "not known"
	if s.Heal.Known {
		heal = fmt.Sprintf("%d entries wait", s.Heal.Pending)
	}

	switch {
	case len(s.Bricks) > 1:
		fmt.Fprintf(w, "healing  %s\nmargin   %s\n", heal, marginText(s.Spare))
	case len(s.Bricks) == 1:
		fmt.Fprintln(w, "margin   one copy only")
	}

	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Bricks) > 0 {
		fmt.Fprintln(tw, "COPY\tNODE\tSTATE\tFREE")
	}

	for _, b := range s.Bricks {
		state := "down"
		switch {
		case !b.Known:
			state = "not known"
		case b.Up:
			state = "up"
		}

		if b.Arbiter {
			state += ", decides only"
		}

		free := "-"
		if b.Total > 0 {
			free = status.Size(b.Free)
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", b.Name, b.Node, state, free)
	}

	_ = tw.Flush()
	kinds := map[status.Code]status.Kind{}
	for _, k := range status.Kinds() {
		kinds[k.Code] = k
	}

	for _, p := range s.Problems {
		k := kinds[p.Code]
		fmt.Fprintf(w, "%s %s: %s\n", p.Code, strings.ReplaceAll(k.Title, "%s", p.Subject), p.Cause)
		fmt.Fprintf(w, "        next: %s\n", strings.ReplaceAll(k.Next, "%s", p.Subject))
	}
}

func marginText(spare int) string {
	switch {
	case spare < 0:
		return "none: the volume has stopped, or it is not known"
	case spare == 0:
		return "none: with one more copy lost the volume stops"
	case spare == 1:
		return "one more copy may be lost"
	}
	return fmt.Sprintf("%d more copies may be lost", spare)
}
