package renderer

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestQuickSaltAnswersAsSalt compares what answers in front of Salt's functions with these, for random
// arguments, see generated.
func TestQuickSaltAnswersAsSalt(t *testing.T) {
	script, err := os.ReadFile("testdata/quicksalt.py")
	if err != nil {
		t.Fatal(err)
	}

	count, random := generated(t, 300)
	cmd := exec.CommandContext(t.Context(), python(t), "-", fmt.Sprint(random.Uint32()), fmt.Sprint(count))
	cmd.Stdin = strings.NewReader(readsScript + quickSaltScript + string(script))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	if n := strings.Count(string(out), "compared: "); n != 4 {
		t.Errorf("%d of 4 functions were compared", n)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "compared: ") {
			t.Error(strings.TrimSpace(line))
		}
	}
}

// TestQuickSaltIsUnusedForFreshTemplates asks, in a template, whether Salt's functions answer alone.
func TestQuickSaltIsUnusedForFreshTemplates(t *testing.T) {
	files := map[string]string{"ext/modules/probe.py": `
import salt.utils.args
def off():
    return salt.utils.args.yamlify_arg.__closure__ and next(
        c.cell_contents.off for c in salt.utils.args.yamlify_arg.__closure__ if hasattr(c.cell_contents, "off"))
`}
	for fresh, want := range map[bool]string{false: "map[x:false]", true: "map[x:true]"} {
		p, _ := oneWorker(t, files, fresh)
		if got := said(render(t, p, "m", nil, "x: {{ salt['probe.off']() }}")); got != want {
			t.Errorf("fresh %v: %s, want %s", fresh, got, want)
		}
	}
}
