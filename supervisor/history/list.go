package history

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	"saltern/supervisor/status"
)

// MaxEvents bounds the events of one node, and of a list of all nodes.
const MaxEvents = 20_000

// Query selects events.
type Query struct {
	Last  int       // number of events, the newest ones; at most [MaxEvents]
	Since time.Time // only events since this time; zero: all events
}

// Values returns the query as parameters of a URL.
func (q Query) Values() url.Values {
	v := url.Values{"last": {strconv.Itoa(q.Last)}}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	return v
}

// ParseQuery parses a query from the parameters of a URL.
func ParseQuery(v url.Values) (q Query, err error) {
	if q.Last, err = strconv.Atoi(v.Get("last")); err != nil || q.Last < 0 {
		return Query{}, errors.New("last is not a number of events")
	}
	q.Last = min(q.Last, MaxEvents)
	if t := v.Get("since"); t != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return Query{}, errors.New("since is not a time of RFC 3339")
		}
	}
	return q, nil
}

// Seen is an event and the name of the node that saw it.
type Seen struct {
	By string `json:"node"`
	Event
}

// List holds the events of the nodes of a cluster, the oldest first.
type List struct {
	Events []Seen `json:"events"`
	// Unasked holds, for each node that did not answer, the reason.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// Add adds a node's events to the list. The node may be hostile: Add takes only the newest events,
// at most MaxEvents, and bounds their texts.
func (l *List) Add(node string, events []Event) {
	for _, e := range events[max(0, len(events)-MaxEvents):] {
		e.Kind, e.Code = Kind(status.Clip(string(e.Kind))), status.Code(status.Clip(string(e.Code)))
		e.Subject, e.Text = status.Clip(e.Subject), status.Clip(e.Text)
		l.Events = append(l.Events, Seen{node, e})
	}
}

// Newest sorts the list by time and keeps the newest events, at most limit.
func (l *List) Newest(limit int) {
	slices.SortStableFunc(l.Events, func(a, b Seen) int { return a.Time.Compare(b.Time) })
	l.Events = l.Events[max(0, len(l.Events)-limit):]
}
