package control

import (
	"net/http"
	"testing"
	"time"

	"saltern/internal/rpc"
)

// TestMethodsAreComplete walks both tables: each method has a bound, and says why it has no
// audit record and no command of its own.
func TestMethodsAreComplete(t *testing.T) {
	for name, table := range map[string]*rpc.Table{"master": masterTable, "door": doorTable} {
		for _, row := range table.Rows() {
			t.Run(name+" "+row.Route, func(t *testing.T) {
				if row.Takes <= 0 || row.Takes > time.Minute {
					t.Errorf("it takes %s", row.Takes)
				}
				if row.Verb() == http.MethodGet && row.Bound > 0 || row.Bound > maxRequest {
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
}
