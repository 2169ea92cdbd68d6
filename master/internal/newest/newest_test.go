package newest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// supervisor answers after some time.
type supervisor struct {
	mu     sync.Mutex
	takes  time.Duration
	why    string
	except string
	err    error
	asked  int
	fired  []*value.Map
}

func (s *supervisor) newest(ctx context.Context, _ control.NewestQuestion) (control.Newest, error) {
	s.mu.Lock()
	s.asked++
	takes, why, except, err := s.takes, s.why, s.except, s.err
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return control.Newest{}, ctx.Err()
	}
	return control.Newest{AsOf: time.Now().Add(-takes), Why: why, Except: except}, err
}

func (s *supervisor) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func start(t *testing.T, s *supervisor) *Service {
	svc := New(Config{
		Ask: s.newest, Node: "n1", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Fire: func(_ string, data *value.Map) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fired = append(s.fired, data)
		},
	})
	t.Cleanup(svc.Close)
	return svc
}

// Three thousand minions of one job share one question.
func TestOneQuestionForAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := &supervisor{takes: 300 * time.Millisecond}
		s := start(t, sup)
		s.JobBegan("state.apply")
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() {
				for range 5 { // pillar, lists, files
					minion := fmt.Sprint("m", i)
					s.Serve(t.Context(), minion, s.Since(minion))
				}
			})
		}

		all.Wait()
		if n := sup.questions(); n != 1 {
			t.Errorf("%d questions", n)
		}

		if f := s.Stats(); f.Questions != 1 || f.Waits != 3000 || f.Seconds != 0.3 || f.AsOf.IsZero() || f.Old != "" {
			t.Errorf("counted: %+v", f)
		}
	})
}

// What the files have to be of: a job, a sign-in, and a bound without them.
func TestOfWhatTimeFilesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := &supervisor{takes: 100 * time.Millisecond}
		s := start(t, sup)
		asks := func(minion string) bool {
			before := sup.questions()
			s.Serve(t.Context(), minion, s.Since(minion))
			return sup.questions() > before
		}

		for _, c := range []struct {
			name   string
			do     func()
			minion string
			want   bool
		}{
			{"the first of all", func() {}, "a", true},
			{"at once again", func() {}, "a", false},
			{"a job began", func() { s.JobBegan("state.apply") }, "a", true},
			{"another minion of that job", func() {}, "b", false},
			{"a tool waits for a job", func() { s.JobBegan("saltutil.find_job") }, "b", false},
			{"salt-call signed in", func() { s.SignedIn("a") }, "a", true},
			{"that of another minion", func() { s.SignedIn("a") }, "b", false},
			{"a while later", func() { time.Sleep(latelyLeast + 200*time.Millisecond) }, "b", true},
		} {
			time.Sleep(time.Millisecond)
			c.do()
			if got := asks(c.minion); got != c.want {
				t.Errorf("%s: asked %v, want %v", c.name, got, c.want)
			}
		}
	})
}

// A question that was under way when a job began is not enough for it.
func TestQuestionOfBeforeIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := &supervisor{takes: time.Second}
		s := start(t, sup)
		go s.Await(t.Context(), time.Now())
		time.Sleep(500 * time.Millisecond)
		s.JobBegan("state.apply")
		begun := time.Now()
		s.Serve(t.Context(), "a", s.Since("a"))
		if n, took := sup.questions(), time.Since(begun); n != 2 || took != 1500*time.Millisecond {
			t.Errorf("%d questions, %v", n, took)
		}
	})
}

// With a volume that hangs a job waits once, is served the files of before, and that is
// said once for each of its minions.
func TestOldFilesAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fault := range map[string]func(*supervisor){
			"the volume":     func(s *supervisor) { s.why = "the shared volume does not answer" },
			"the supervisor": func(s *supervisor) { s.err = errors.New("no answer") },
		} {
			sup := &supervisor{}
			s := start(t, sup)
			s.Serve(t.Context(), "a", s.Since("a"))
			good := time.Now()

			time.Sleep(time.Minute)
			sup.mu.Lock()
			sup.takes = 5 * time.Second
			fault(sup)
			sup.mu.Unlock()

			s.JobBegan("state.apply")
			begun := time.Now()
			for range 4 {
				s.Serve(t.Context(), "a", s.Since("a"))
				s.Serve(t.Context(), "b", s.Since("b"))
			}

			if took := time.Since(begun); took != 5*time.Second+warnEvery {
				t.Errorf("%s: the job waited for %v", name, took)
			}

			time.Sleep(time.Millisecond)
			s.JobBegan("state.apply")
			s.Serve(t.Context(), "a", s.Since("a"))
			var got []string
			for _, f := range sup.fired {
				got = append(got, f.Str("id"))
				if f.Str("why") == "" || f.Str("node") != "n1" ||
					name == "the supervisor" && f.Str("as_of") != good.UTC().Format(time.RFC3339) {
					t.Errorf("%s: %v", name, f)
				}
			}

			if fmt.Sprint(got) != "[a b a]" {
				t.Errorf("%s: said for %v", name, got)
			}

			if f := s.Stats(); f.Late != 1 || f.ServedOld != 9 || f.Old == "" || f.AsOf.After(good) {
				t.Errorf("%s: counted: %+v", name, f)
			}

			sup.mu.Lock()
			sup.why = ""
			sup.err = nil
			sup.takes = 0
			sup.mu.Unlock()

			time.Sleep(askAgain)
			s.Serve(t.Context(), "a", s.Since("a"))
			if n := len(sup.fired); n != 3 {
				t.Errorf("%s: said %d times, also when the files are new", name, n)
			}

			s.Close()
		}
	})
}

// A file that goes on changing, or a volume that hangs, is said in few events, however many
// minions are served old files. Each job hears of its own before they return.
func TestWarningsDoNotGrowWithMinions(t *testing.T) {
	const jobs, minions = 3, 3000
	for name, sup := range map[string]*supervisor{
		"a file is written": {takes: 100 * time.Millisecond, except: "srv/salt/f is being written"},
		"the volume hangs":  {takes: 5 * time.Second, why: "the shared volume does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, sup)
				for job := range jobs {
					time.Sleep(time.Millisecond)
					s.JobBegan("state.apply")
					var all sync.WaitGroup
					for i := range minions {
						all.Go(func() {
							minion := fmt.Sprint("m", i)
							s.Serve(t.Context(), minion, s.Since(minion))
							if s.Due(minion, s.Since(minion)) {
								t.Errorf("%s would wait once more", minion)
							}
						})
					}

					all.Wait()

					said := map[string]int{}
					for _, f := range sup.fired {
						if f.Str("id") != f.Texts("minions")[0] {
							t.Errorf("the first minion is %s of %s", f.Str("id"), f.Texts("minions")[0])
						}
						for _, minion := range f.Texts("minions") {
							said[minion]++
						}
					}

					if len(said) != minions || said["m0"] != job+1 || said["m2999"] != job+1 {
						t.Errorf("job %d: said of %d minions, of one %d times", job, len(said), said["m0"])
					}
				}

				if most := jobs * (2 + minions/warnMost); len(sup.fired) > most {
					t.Errorf("%d events for %d jobs of %d minions, want %d at most", len(sup.fired), jobs,
						minions, most)
				}
			})
		})
	}
}

// Who asks and goes is not waited for, and what was not said is said when the service ends.
func TestWarningOfOneWhoWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := &supervisor{except: "srv/salt/f is being written"}
		s := start(t, sup)
		s.Serve(t.Context(), "a", s.Since("a"))

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		s.mu.Lock()
		s.asOf = time.Now().Add(time.Hour)
		s.mu.Unlock()

		s.Serve(gone, "b", s.Since("b"))
		if len(sup.fired) != 1 {
			t.Errorf("said %d times at once", len(sup.fired))
		}

		s.Close()
		if len(sup.fired) != 2 || sup.fired[1].Str("id") != "b" {
			t.Errorf("said: %v", sup.fired)
		}
	})
}

// Requests that wait are bounded.
func TestWaitingIsBounded(t *testing.T) {
	s := start(t, &supervisor{})
	for range maxWaiting {
		if _, err := s.Enter(); err != nil {
			t.Fatal(err)
		}
	}

	leave, err := s.Enter()
	if err == nil {
		leave()
		t.Error("one more than may wait")
	}

	if s.Stats().Refused != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// Files that are being written are served as they were: that is said, and the next job asks
// anew at once.
func TestFilesBeingWrittenAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := &supervisor{takes: 100 * time.Millisecond, except: "srv/salt/f is being written"}
		s := start(t, sup)
		for range 3 {
			time.Sleep(time.Millisecond)
			s.JobBegan("state.apply")
			for range 4 {
				s.Serve(t.Context(), "a", s.Since("a"))
			}
		}

		if n := sup.questions(); n != 3 || len(sup.fired) != 3 {
			t.Errorf("three jobs: %d questions, said %d times", n, len(sup.fired))
		}

		sup.mu.Lock()
		sup.except = ""
		sup.mu.Unlock()

		time.Sleep(time.Millisecond)
		s.JobBegan("state.apply")
		s.Serve(t.Context(), "a", s.Since("a"))
		if len(sup.fired) != 3 {
			t.Errorf("it is written no more, and said: %v", sup.fired)
		}
	})
}

// Where a directory of the copy is on the shared volume, and that nobody writes into a copy
// whose source is not known.
func TestSourceOfTheCopy(t *testing.T) {
	for name, c := range map[string]struct {
		answer    control.Newest
		dir, want string
	}{
		"in the copy": {control.Newest{Copy: "/data/mirror", Source: "/srv/cluster"},
			"/data/mirror/srv/salt", "/srv/cluster/srv/salt"},
		"the copy": {control.Newest{Copy: "/data/mirror", Source: "/srv/cluster"}, "/data/mirror",
			"/srv/cluster"},
		"beside it": {control.Newest{Copy: "/data/mirror", Source: "/srv/cluster"},
			"/data/mirror2/salt", "/data/mirror2/salt"},
		"above it":     {control.Newest{Copy: "/data/mirror", Source: "/srv/cluster"}, "/data", "/data"},
		"no copy":      {control.Newest{Direct: true}, "/srv/salt", "/srv/salt"},
		"not said":     {control.Newest{}, "/data/mirror/srv/salt", ""},
		"said wrongly": {control.Newest{Copy: "mirror", Source: "cluster"}, "/data/mirror/srv/salt", ""},
		"without a volume": {control.Newest{Copy: "/data/mirror", Source: "/srv/cluster", Why: "it hangs"},
			"/data/mirror/srv/salt", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{
				Ask:  func(context.Context, control.NewestQuestion) (control.Newest, error) { return c.answer, nil },
				Fire: func(string, *value.Map) {},
				Now:  time.Now,
				Log:  slog.New(slog.DiscardHandler),
			})
			defer s.Close()

			if got, err := s.Source(t.Context(), c.dir); got != c.want || (err != nil) != (c.want == "") {
				t.Errorf("%q %v", got, err)
			}
		})
	}
}
