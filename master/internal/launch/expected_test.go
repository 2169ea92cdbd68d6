package launch

import "testing"

// A batch publishes one job several times: it went to the minions of all of them.
func TestExpectedOfABatch(t *testing.T) {
	e := newExpected()
	e.addJob("1", true, []string{"web1"})
	e.addJob("1", true, []string{"web2"})
	for id, want := range map[string]bool{"web1": true, "web2": true, "db1": false} {
		if may, known := e.mayReturn("1", id, ""); may != want || !known {
			t.Errorf("%s: %v, known %v", id, may, known)
		}
	}
	e.addJob("1", false, nil)
	if may, _ := e.mayReturn("1", "db1", ""); !may {
		t.Error("a job that went to all is still that of a few")
	}
}
