package nodeapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"saltern/supervisor/marks"
)

// TestMarks: a member is told how far a node's disks have come, and who answered in its own
// place; a stranger is not. A node of a version before, and one whose answer is hostile, say
// nothing that would be used.
func TestMarks(t *testing.T) {
	c := startNode(t)
	c.marks = marks.Report{
		Start: "S1",
		Copy:  true,
		Marks: map[marks.Place]marks.History{marks.Bricks: {Starts: []marks.Start{{ID: "S1", Last: 7}}}},
	}

	cl := NewClient(c.id, c.address, c.id.Hash)
	defer cl.Close()
	r, err := cl.Marks(within(t))
	if err != nil || r.Marks[marks.Bricks].Count() != 7 || !r.Copy || r.Heard == nil || r.Heard.Start != c.id.Hash[:8] {
		t.Errorf("%+v %v", r, err)
	}

	c.marks.Memory = marks.Memory{"../n1": nil}
	if r, err := cl.Marks(within(t)); err == nil || r.Start != "" {
		t.Errorf("hostile: %+v %v", r, err)
	}

	stranger := NewClient(identity(t), c.address, c.id.Hash)
	defer stranger.Close()
	if r, err := stranger.Marks(within(t)); err == nil || r.Start != "" {
		t.Errorf("stranger: %+v %v", r, err)
	}
}

// TestMarksOfAVersionBefore: a node that has no such route remembers nothing, and has
// answered.
func TestMarksOfAVersionBefore(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	cl := &Client{http: srv.Client()}
	cl.http.Transport = &redirected{srv.Client().Transport, strings.TrimPrefix(srv.URL, "https://")}
	if r, err := cl.Marks(within(t)); err != nil || r.Start != "" {
		t.Errorf("%+v %v", r, err)
	}
}

// redirected sends what goes to a node to an address.
type redirected struct {
	http.RoundTripper
	address string
}

// RoundTrip implements http.RoundTripper.
func (r *redirected) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Host = r.address
	return r.RoundTripper.RoundTrip(q)
}
