package postgres

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// BenchmarkWrite measures how many returns a second one lane writes, and the CPU time that a return takes
// in the process of the master.
func BenchmarkWrite(b *testing.B) {
	ret := statesReturn()
	for _, c := range []struct {
		name, function string
		ret            any
		before         string // what is done in the database before
	}{
		{"ping", "test.ping", true, ""},
		{"states", "state.apply", ret, ""},
		{"states-and-gin", "state.apply", ret, saltsSchema},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkWrite(b, c.function, c.ret, c.before) })
	}
}

// statesReturn returns what state.apply returns for 20 states that changed nothing.
func statesReturn() *value.Map {
	ret := value.NewMap()
	for i := range 20 {
		ret.Set(fmt.Sprintf("file_|-state%d_|-/etc/app/%d.conf_|-managed", i, i), value.NewMap(
			"name", fmt.Sprintf("/etc/app/%d.conf", i), "changes", value.NewMap(), "result", true,
			"comment", "File is in the correct state", "__sls__", "app.config", "__run_num__", int64(i),
			"start_time", "08:41:39.123456", "duration", 3.141, "__id__", fmt.Sprintf("state%d", i)))
	}
	return ret
}

func benchmarkWrite(b *testing.B, function string, ret any, before string) {
	s := sharedServer(b)
	db := s.database(b)
	_, err := s.query(b, db).Exec(b.Context(), before)
	check.Must(b, err)
	content, err := msgpack.Marshal(value.NewMap("return", ret, "retcode", int64(0), "success", true), msgpack.Modern)
	check.Must(b, err)
	load := value.NewMap("fun", function, "arg", []any{}, "user", "root", "tgt", "*")
	j, err := OpenJournal(b.TempDir(), 8<<30, time.Now, discard())
	check.Must(b, err)
	defer j.Close()

	const minions = 2000 // of each job
	began := cpuTime()
	for i := range b.N {
		check.Must(b, j.Add(jobs.Archived{
			JID:    jid(1 + i/minions),
			Minion: fmt.Sprintf("minion%d.example.com", i%minions),
			Time:   time.Now(),
			Own:    true,
			Return: content,
			Load:   func() *value.Map { return load },
		}, nil))
	}
	check.Must(b, j.Sync())
	spooling := float64(cpuTime()-began) / float64(b.N) / 1000

	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	sink := New(Config{Settings: db, Node: "n", Journal: j, Now: time.Now, Log: discard()})
	b.ResetTimer()
	began = cpuTime()
	go sink.Run(ctx)
	if !await.Within(10*time.Minute, func() bool { return sink.Stats().Waiting == 0 }) {
		b.Fatalf("%+v", sink.Stats())
	}
	b.StopTimer()
	b.ReportMetric(spooling, "µs-CPU-to-spool/return")
	b.ReportMetric(float64(cpuTime()-began)/float64(b.N)/1000, "µs-CPU-to-database/return")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "returns/s")
	b.ReportMetric(float64(len(content)), "bytes/return")
	size := count(b, s.query(b, db), "SELECT pg_database_size(current_database())")
	b.ReportMetric(float64(size)/float64(b.N), "bytes-of-database/return")
}

// cpuTime returns the CPU time of this process, in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
