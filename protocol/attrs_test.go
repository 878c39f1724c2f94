package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// api §3 «Attributes».
func TestAttrs(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxNesting-1) + "{}" + strings.Repeat("}", MaxNesting-1)
	for _, c := range []struct {
		body, want, code string
		position         int64
	}{
		{`{}`, ``, "", 0},
		{" { } ", ``, "", 0},
		{`{"title":"x"}`, `{"title":"x"}`, "", 0},
		{" {\t\"metadata\" : { \"b\" : 1.0 , \"a\":[ ] } ,\n\"title\" : \"é \\u0000\" } ", `{"metadata":{"b":1.0,"a":[]},"title":"é \u0000"}`, "", 0},
		{`{"metadata":` + deep + `}`, `{"metadata":` + deep + `}`, "", 0},
		{`{"metadata":{"a":1,"a":2}}`, `{"metadata":{"a":1,"a":2}}`, "", 0}, // the application's own affair
		{`{"metadata":{"a":` + deep + `}}`, "", codeInvalidJSON, int64(len(`{"metadata":{"a":`) + len(deep) - len("{}") - (MaxNesting - 1))},
		{`[]`, "", codeInvalidAttrs, 0},
		{` "x"`, "", codeInvalidAttrs, 1},
		{`null`, "", codeInvalidAttrs, 0},
		{`{"title":1}`, "", codeInvalidAttrs, 1},
		{`{"title":null}`, "", codeInvalidAttrs, 1},
		{`{"metadata":[]}`, "", codeInvalidAttrs, 1},
		{`{"title":"x", "metadata":"y"}`, "", codeInvalidAttrs, 14},
		{`{"other":1}`, "", codeInvalidAttrs, 1},
		{`{"Title":"x"}`, "", codeInvalidAttrs, 1},
		{`{"titles":"x"}`, "", codeInvalidAttrs, 1},
		{`{"title":"x","title":"x"}`, "", codeInvalidAttrs, 13},
		{``, "", codeInvalidJSON, 0},
		{`[1,`, "", codeInvalidJSON, 3},
		{`{`, "", codeInvalidJSON, 1},
		{`{"title":"x",}`, "", codeInvalidJSON, 13},
		{`{"title":"x"`, "", codeInvalidJSON, 12},
		{`{"title" "x"}`, "", codeInvalidJSON, 9},
		{`{"title":"x"} {}`, "", codeInvalidJSON, 14},
		{"\ufeff{}", "", codeInvalidJSON, 0},
		{"{\"title\":\"\xff\"}", "", codeInvalidJSON, 10},
	} {
		op := parse(t, "PUT /ds/buck/s/attrs", "body: 1")
		got := op.ParseAttrs([]byte("before"), []byte(c.body))
		switch p := op.BodyFault; {
		case c.code == "" && (p != nil || string(got) != "before"+c.want):
			t.Errorf("%.60s: %s, %v", c.body, got, p)
		case c.code != "" && (p == nil || p.Code != c.code || p.Position != c.position || string(got) != "before"):
			t.Errorf("%.60s: %+v, want %s at %d", c.body, p, c.code, c.position)
		}
		header := parse(t, "PUT /v1/stream/%61", "Stream-Attrs: "+c.body)
		spaces := strings.TrimSpace(c.body) != c.body // HTTP takes them away
		switch p := header.Fault; {
		case c.code == "" && (p != nil || !header.HasAttrs || string(header.Attrs) != c.want || string(header.Stream) != "a"):
			t.Errorf("Stream-Attrs: %.60s: %s, %v", c.body, header.Attrs, p)
		case c.code != "" && (p == nil || p.Code != codeInvalidAttrs || p.Field != "Stream-Attrs" || p.Position != -1) && !spaces:
			t.Errorf("Stream-Attrs: %.60s: %+v", c.body, p)
		}
	}
	full := `{"title":"` + strings.Repeat("x", MaxAttrs-len(`{"title":""}`)) + `"}`
	op := parse(t, "PUT /ds/buck/s/attrs", "body: 1")
	if got := op.ParseAttrs(nil, []byte(full)); op.BodyFault != nil || len(got) != MaxAttrs {
		t.Errorf("16 KiB: %v", op.BodyFault)
	}
	if op.ParseAttrs(nil, []byte(full+" ")); op.BodyFault == nil || op.BodyFault.Code != codeBodyTooLarge || op.BodyFault.Limit != MaxAttrs {
		t.Errorf("more than 16 KiB: %+v", op.BodyFault)
	}
	if op := parse(t, "PUT /v1/stream/s", "Stream-Attrs: "+full[:10]+"x"+full[10:]); op.Fault == nil || op.Fault.Limit != MaxAttrs {
		t.Errorf("more than 16 KiB in a header: %+v", op.Fault)
	}
	if got := fault(t, "PUT /v1/stream/s", "Stream-Attrs: {}", "Stream-Attrs: {}"); got != codeRepeatedHeader {
		t.Errorf("twice: %q", got)
	}
	r := NewRenderer(Settings{})
	for attrs, want := range map[string]string{"": "{}", `{"title":"x"}`: `{"title":"x"}`} {
		fields, body := r.Attrs(nil, 7, "text/plain", attrs)
		check(t, "attrs", 200, fields, 200, "Content-Type: application/json", private, "Stream-Incarnation: 7", "!ETag")
		if string(body) != want {
			t.Errorf("%q: %s", attrs, body)
		}
	}
}

// encoding/json agrees on what attributes are.
func FuzzAttrs(f *testing.F) {
	for _, s := range []string{`{"title":"x","metadata":{"a":[1,{}]}}`, ` {"metadata":{}} `, `{"title":1}`, `{"title":"a","title":"b"}`, `[]`, `{"t\u0069tle":"x"}`, "{\"title\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		op := new(Operation)
		got := op.ParseAttrs(nil, body)
		if op.BodyFault != nil {
			if p := op.BodyFault; p.Code != codeBodyTooLarge && (p.Position < 0 || p.Position > int64(len(body)) || p.Detail == "") {
				t.Fatalf("%q: %+v", body, p)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, body); err != nil {
			t.Fatal(err)
		}
		if want := compact.String(); string(got) != want && !(len(got) == 0 && want == "{}") {
			t.Fatalf("%q became %q, want %q", body, got, want)
		}
		for name, value := range members {
			if kind := value[0]; name != "title" && name != "metadata" || name == "title" && kind != '"' || name == "metadata" && kind != '{' {
				t.Fatalf("%q has a member %q", body, name)
			}
		}
	})
}
