//go:build attack

package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// strangerEnv makes this program the stranger; its value is his orders.
const strangerEnv = "SALTERN_ATTACK_ORDERS"

// userEnv makes it a user of salt-api.
const userEnv = "SALTERN_ATTACK_USER"

func TestMain(m *testing.M) {
	if o := os.Getenv(strangerEnv); o != "" {
		os.Exit(strangerMain(o))
	}
	if o := os.Getenv(userEnv); o != "" {
		os.Exit(userMain(o))
	}
	prefer(-10)
	// A scheduler that groups by session asks for the priority of the group,
	// which is ours and that of all we start, the stranger included.
	_ = os.WriteFile("/proc/self/autogroup", []byte("-10"), 0)
	code := m.Run()
	printSummary()
	os.Exit(code)
}

// prefer sets the priority of this process and of what it starts.
func prefer(nice int) {
	tasks, _ := filepath.Glob("/proc/self/task/[0-9]*")
	for _, t := range tasks {
		if tid, err := strconv.Atoi(filepath.Base(t)); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, nice)
		}
	}
}

// form is how long and how hard the attacks are.
type form struct {
	long  bool
	time  time.Duration // of one way
	conns int           // of the stranger
}

// chosen reads SALTERN_ATTACK: long or short.
func chosen() form {
	f := form{time: 4 * time.Second, conns: 300}
	if os.Getenv("SALTERN_ATTACK") == "long" {
		f = form{long: true, time: time.Minute, conns: 1000}
	}
	if d, err := time.ParseDuration(os.Getenv("SALTERN_ATTACK_TIME")); err == nil {
		f.time = d
	}
	return f
}

// report collects what the lines say.
var report struct {
	sync.Mutex
	ok, failed int
	bad        []string
}

// line prints the line of a finding. Outcome are figures, faults what is wrong;
// without any it is ok.
func line(t *testing.T, finding, tried, outcome string, faults ...string) {
	t.Helper()
	verdict := "ok"
	if len(faults) > 0 {
		verdict = "FAILED: " + strings.Join(faults, "; ")
		t.Errorf("finding %s, %s: %s", finding, tried, strings.Join(faults, "; "))
	}

	report.Lock()
	defer report.Unlock()
	text := fmt.Sprintf("finding %-3s %-46s %s  [%s]", finding, tried, verdict, outcome)
	if len(faults) > 0 {
		report.failed++
		report.bad = append(report.bad, text)
	} else {
		report.ok++
	}

	fmt.Println(text)
}

func printSummary() {
	report.Lock()
	defer report.Unlock()
	if report.ok+report.failed > 0 {
		fmt.Printf("attack: %d ok, %d failed\n", report.ok, report.failed)
		for _, b := range report.bad { // again, where the logs of the node end
			fmt.Println(b)
		}
	}
}
