package console

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"saltern/internal/control"
)

// Bounds and sizes of a plot. The console draws plots as SVG, since its script draws nothing.
const (
	maxPlotted = 6 // nodes in one plot
	plotWide   = 480
	plotHigh   = 96
	plotTop    = 6 // space above the maximum, so that a line there is not cut
	plotSpan   = 24 * time.Hour
)

// plot shows one measured value of several nodes for the last day.
type plot struct {
	ID, Title  string
	Wide, High int
	Most       string // label of the upper edge, the largest value
	Lines      []plotLine
	Hours      []int // positions of the grid's vertical lines, at intervals of 6 hours
	Left       int   // number of nodes that are not drawn
	Words      string
	Middle     int // position of the grid's horizontal line
}

// plotLine is the line of one node in a plot.
type plotLine struct {
	Node, Now, Most string
	Old             bool // Now is not of now: the node has told nothing since
	End             int  // where an old line ends, from the left
	Class           int
	Parts           []string // points of polylines; a gap in the data begins a new one
}

// plotsOf returns the plots of a metrics history for the day before now.
func plotsOf(c control.Course, now time.Time) (out []plot) {
	for _, f := range []struct {
		id, title string
		of        func(control.Point) *float64
		word      func(float64) string
	}{
		{"minions", "Minions connected", func(p control.Point) *float64 { return p.Minions }, shortNumber},
		{"returns", "Returns a second", func(p control.Point) *float64 { return p.Returns }, shortNumber},
		{"latency", "Slowest answer of the master, each five minutes", func(p control.Point) *float64 { return p.Latency },
			func(v float64) string { return shortNumber(v) + " ms" }},
		{"memory", "Memory of master, balancer and API together", func(p control.Point) *float64 { return p.Memory }, bytesWord},
	} {
		if p := drawPlot(c.Nodes, now, f.of, f.word); len(p.Lines) > 0 {
			p.ID, p.Title = f.id, f.title
			out = append(out, p)
		}
	}

	return out
}

func drawPlot(nodes []control.Series, now time.Time, measure func(control.Point) *float64, label func(float64) string) plot {
	p := plot{Wide: plotWide, High: plotHigh, Middle: (plotHigh + plotTop) / 2, Left: max(len(nodes)-maxPlotted, 0)}
	nodes = nodes[:min(len(nodes), maxPlotted)]
	highest := 0.0
	for _, n := range nodes {
		for _, x := range n.Points {
			if v := measure(x); v != nil && *v < math.MaxFloat32 {
				highest = max(highest, *v)
			}
		}
	}

	if highest <= 0 {
		highest = 1
	}

	p.Most = label(highest)
	var words []string
	for i, n := range nodes {
		l := plotLine{Node: n.Node, Class: i + 1}
		var last *float64
		top, before := 0.0, time.Time{}
		for _, x := range n.Points {
			v, age := measure(x), now.Sub(x.At)
			if v == nil || math.IsNaN(*v) || *v < 0 || *v > highest || age < 0 || age > plotSpan || x.At.Before(before) {
				continue
			}

			l.End = int((plotSpan - age) * plotWide / plotSpan)
			at := strconv.Itoa(l.End) + "," +
				strconv.FormatFloat(plotHigh-*v/highest*(plotHigh-plotTop), 'f', 1, 64)
			if x.At.Sub(before) > 2*control.PointEvery {
				l.Parts = append(l.Parts, at)
			} else {
				l.Parts[len(l.Parts)-1] += " " + at
			}

			last = v
			top = max(top, *v)
			before = x.At
		}

		if last == nil {
			continue
		}

		for i, part := range l.Parts { // SVG draws no line through one point: double the point
			if !strings.Contains(part, " ") {
				l.Parts[i] += " " + part
			}
		}

		l.Now, l.Most = label(*last), label(top)
		l.Old = now.Sub(before) > 2*control.PointEvery
		when := "now"
		if l.Old {
			when = "last"
		}
		words = append(words, fmt.Sprintf("%s %s %s, highest %s", l.Node, when, l.Now, l.Most))
		p.Lines = append(p.Lines, l)
	}

	p.Words = strings.Join(words, "; ")
	for h := now.Truncate(6 * time.Hour); now.Sub(h) < plotSpan; h = h.Add(-6 * time.Hour) {
		p.Hours = append(p.Hours, int((plotSpan-now.Sub(h))*plotWide/plotSpan))
	}

	return p
}

// shortNumber returns a number with about three digits.
func shortNumber(v float64) string {
	switch {
	case v == math.Trunc(v) && v < 1e15:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}
