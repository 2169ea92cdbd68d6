package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// paced are the sleeps that unit tests outside test/ may have in real time, by file
// and function: what is played has a pace of its own. Waiting is for test/await, and
// time that passes for testing/synctest.
var paced = map[string]struct {
	n   int
	why string
}{
	"cmd/applianced/wait_test.go TestStatusWait":                                   {1, "a supervisor starts late"},
	"glusterctl/gluster_test.go until":                                             {1, "real glusterds, asked by a slow program"},
	"image/disk/disk_test.go TestBuild":                                            {1, "file systems count in seconds"},
	"lbproxy/cluster_test.go TestFlap":                                             {1, "a master is up for a moment"},
	"lbproxy/fakes_test.go castPieces":                                             {1, "a message comes in two packets"},
	"lbproxy/fakes_test.go request":                                                {1, "a slow master"},
	"lbproxy/lifecycle_test.go asks":                                               {1, "a client that asks now and then"},
	"lbproxy/limits_test.go TestIdleLimits":                                        {1, "a slow master"},
	"lbproxy/proxy_test.go TestHalfClose":                                          {1, "a slow master"},
	"lbproxy/proxy_test.go TestHeldSessionsLeaveNothingBehind":                     {1, "checks of health end, which nothing shows"},
	"lbproxy/transfer_test.go TestMastersComeAndGo":                                {1, "a master is away for a moment"},
	"lbproxy/transfer_test.go TestPendingRequest":                                  {1, "half an answer, then the end"},
	"master/internal/mastertest/minions/identity_test.go TestAttack18KeysAtSignIn": {1, "a minion that asks now and then"},
	"master/internal/mastertest/minions/load_test.go bearWitness":                  {1, "a minion that asks now and then"},
	"master/cluster/folder_test.go TestPrepareWhileSaltWritesTheKey":               {1, "a slow writer"},
	"master/event/server_test.go TestSettle":                                       {1, "a busy machine"},
	"master/internal/git/store_test.go TestKilled":                                 {1, "killed anywhere in a fetch"},
	"master/internal/reactor/crowd_test.go TestBurstOfReactions":                   {1, "runners that take their time"},
	"master/internal/publish/bench_test.go BenchmarkFanOut1000":                    {1, "a step of test/await would be measured"},
	"master/internal/publish/publisher_test.go TestOrder":                          {1, "signatures take random time"},
	"master/jobs/jobs_test.go TestLoadIsFileWhenTheWaitEnds":                       {1, "a slow disk"},
	"master/keys/incoming_test.go TestIncomingConflict":                            {1, "sign-ins at random moments"},
	"master/zmtp/attack_test.go TestAttack20SlowGreeting":                          {1, "an attacker sends byte by byte"},
	"master/zmtp/attack_test.go TestAttack20StuckMessage":                          {2, "an attacker sends byte by byte"},
	"master/zmtp/bench_test.go BenchmarkFanOut1000":                                {1, "a step of test/await would be measured"},
	"master/zmtp/fuzz_test.go FuzzConnection": {1,
		"a step of test/await would be most of an execution"},
	"cmd/salt/elsewhere_test.go Write":                      {1, "called in a bubble of fake time"},
	"lbproxy/health_test.go checksIn":                       {1, "called in a bubble of fake time"},
	"master/internal/launch/below_test.go play":             {1, "called in a bubble of fake time"},
	"master/internal/queue/queue_test.go ask":               {1, "called in a bubble of fake time"},
	"master/internal/schedule/cluster_test.go changeOwners": {4, "called in a bubble of fake time"},
	"master/internal/schedule/cluster_test.go killOwners":   {3, "called in a bubble of fake time"},
	"master/internal/schedule/schedule_test.go Call":        {1, "called in a bubble of fake time"},
	"master/internal/schedule/schedule_test.go runFor":      {1, "called in a bubble of fake time"},
	"supervisor/internal/service/hang_test.go late":         {1, "called in a bubble of fake time"},
	"tui/pump_test.go end":                                  {1, "called in a bubble of fake time"},
	"tui/pump_test.go wait":                                 {1, "called in a bubble of fake time"},
}

// TestSleeps: unit tests wait for what they want to see, not for time to pass. A
// function literal that is given to testing/synctest, or to a helper of the same file
// that hands it on, is in fake time.
func TestSleeps(t *testing.T) {
	found := map[string]int{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		rel := filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
		switch {
		case err != nil:
			return err
		case e.IsDir() && (rel == "test" || rel != root && strings.HasPrefix(e.Name(), ".")):
			return filepath.SkipDir
		case !strings.HasSuffix(rel, "_test.go"):
			return nil
		}

		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}

		bubbles := map[string]bool{}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && calls(fn, "synctest", nil) > 0 {
				bubbles[fn.Name.Name] = true
			}
		}

		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := calls(fn, "time.Sleep", bubbles); n > 0 {
					found[rel+" "+fn.Name.Name] += n
				}
			}
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for where, n := range found {
		if n > paced[where].n {
			t.Errorf("%s has %d sleeps in real time: wait with test/await, or let time pass in testing/synctest",
				where, n)
		}
	}

	for where, p := range paced {
		if found[where] < p.n {
			t.Errorf("%s has %d sleeps only: take it off the list", where, found[where])
		}
	}
}

// calls counts the calls of a function or of any function of a package, but those in
// arguments of bubbles.
func calls(fn *ast.FuncDecl, name string, bubbles map[string]bool) (n int) {
	ast.Inspect(fn, func(x ast.Node) bool {
		c, ok := x.(*ast.CallExpr)
		if !ok {
			return true
		}

		switch f := c.Fun.(type) {
		case *ast.Ident:
			return !bubbles[f.Name]
		case *ast.SelectorExpr:
			id, _ := f.X.(*ast.Ident)
			switch {
			case id == nil:
			case id.Name == name || id.Name+"."+f.Sel.Name == name:
				n++
			case id.Name == "synctest":
				return false
			}
		}

		return true
	})

	return n
}
