package spread

import "testing"

func TestOf(t *testing.T) {
	if got := Of(nil); got != (Summary{}) {
		t.Errorf("of nothing: %+v", got)
	}

	if got, want := Of([]float64{7}), (Summary{1, 7, 7, 7, 7, 7, 7}); got != want {
		t.Errorf("of one: %+v, want %+v", got, want)
	}

	values := make([]float64, 1000)
	for i := range values {
		values[len(values)-1-i] = float64(i + 1)
	}

	if got, want := Of(values), (Summary{1000, 1, 500, 950, 990, 999, 1000}); got != want {
		t.Errorf("of 1 to 1000: %+v, want %+v", got, want)
	}

	if values[0] != 1000 {
		t.Error("the caller's values were sorted")
	}
}
