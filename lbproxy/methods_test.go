package lbproxy

import (
	"net/http"
	"testing"
	"time"
)

// TestAdminMethodsAreComplete walks the table: each method has a bound, a reason for no audit
// record, and a command or a reason for none.
func TestAdminMethodsAreComplete(t *testing.T) {
	for _, row := range adminTable.Rows() {
		t.Run(row.Route, func(t *testing.T) {
			if row.Takes <= 0 || row.Takes > time.Minute {
				t.Errorf("it takes %s", row.Takes)
			}
			if (row.Verb() == http.MethodGet) == (row.Bound > 0) || row.Bound > maxAdminBody {
				t.Errorf("a body of %d bytes", row.Bound)
			}
			if (row.Audit == "") == (row.Unaudited == "") {
				t.Errorf("action %q, and none because %q", row.Audit, row.Unaudited)
			}
			if (row.Command == "") == (row.NoCommand == "") {
				t.Errorf("command %q, and none because %q", row.Command, row.NoCommand)
			}
		})
	}
}
