#include "study/page.h"

#include "study/svg.h"

/* Ink and series have a contrast of 4.5 and 3 at least against their ground in both schemes. */
static const char style[] =
    ":root{color-scheme:light dark;--ground:#fcfcfa;--panel:#fff;--ink:#1c1b1a;--soft:#5a5855;"
    "--rule:#dcdad5;--grid:#eceae5;--good:#11672f;--bad:#a3201c;"
    "--c0:#1f66c1;--c1:#b8510e;--c2:#0e7a55;--c3:#8a3fb0;--c4:#a8244f;--c5:#0f7484;--c6:#7a6408;"
    "--c7:#5a5f6b}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#161615;--panel:#1f1f1d;--ink:#ecebe8;"
    "--soft:#b0aea8;--rule:#3c3b38;--grid:#2c2b29;--good:#6fcf8d;--bad:#ff8f86;"
    "--c0:#6ba6f5;--c1:#f09a5b;--c2:#4fc79a;--c3:#c792ea;--c4:#f285a4;--c5:#56c5d6;--c6:#d6bb4a;"
    "--c7:#a9afbd}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);"
    "font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",sans-serif}\n"
    "header,main,footer{max-width:78rem;margin:0 auto;padding:0 1rem}header{padding-top:1.5rem}\n"
    "h1{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2.2rem 0 "
    ".5rem}"
    "h3{font-size:1rem;margin:1.2rem 0 .4rem}p{margin:.4rem 0;max-width:46rem}\n"
    ".soft,figcaption,footer{color:var(--soft);font-size:.9rem}footer{padding-bottom:2rem;"
    "margin-top:2.5rem}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}"
    "th,td{padding:.3rem .42rem;text-align:right;border-bottom:1px solid var(--rule);"
    "white-space:nowrap}thead th{vertical-align:bottom;color:var(--soft);font-weight:600}"
    "tbody th{text-align:left;font-weight:600}th:first-child{text-align:left}"
    "td.text{text-align:left;white-space:normal;min-width:6rem}\n"
    ".scroll{overflow-x:auto;max-width:100%}.scroll:focus-visible,summary:focus-visible,"
    "input:focus-visible,select:focus-visible,button:focus-visible{outline:3px solid var(--c0);"
    "outline-offset:2px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:"
    "1rem}"
    "figure{margin:0}.chart{width:100%;max-width:44rem;height:auto;background:var(--panel);"
    "border:1px solid var(--rule);border-radius:6px}\n"
    ".grid{stroke:var(--grid)}.tick{fill:var(--soft);font-size:13px}.name{fill:var(--soft);"
    "font-size:14px}.label{fill:var(--ink);font-size:14px}.line{fill:none;stroke-width:2}"
    ".front{fill:none;stroke:var(--soft);stroke-width:1.5;stroke-dasharray:5 4}"
    ".mark{stroke:var(--panel);stroke-width:1.5}\n"
    ".mark.s0,.bar.s0{fill:var(--c0)}.mark.s1,.bar.s1{fill:var(--c1)}.mark.s2,.bar.s2{fill:var(--"
    "c2)}"
    ".mark.s3,.bar.s3{fill:var(--c3)}.mark.s4,.bar.s4{fill:var(--c4)}.mark.s5,.bar.s5{fill:var(--"
    "c5)}"
    ".mark.s6,.bar.s6{fill:var(--c6)}.mark.s7,.bar.s7{fill:var(--c7)}\n"
    ".line.s0{stroke:var(--c0)}.line.s1{stroke:var(--c1)}.line.s2{stroke:var(--c2)}"
    ".line.s3{stroke:var(--c3)}.line.s4{stroke:var(--c4)}.line.s5{stroke:var(--c5)}"
    ".line.s6{stroke:var(--c6)}.line.s7{stroke:var(--c7)}\n";
static const char style_more[] =
    ".good{color:var(--good)}.bad{color:var(--bad)}"
    ".pictures td,.pictures th{vertical-align:top;text-align:left;padding:.35rem}"
    ".pictures img{display:block;border-radius:4px;width:128px;height:auto;image-rendering:auto}"
    ".pictures img+img{margin-top:4px}.pictures .soft{display:block;font-size:.8rem}\n"
    ".pictures tbody th{min-width:7rem;max-width:10rem;white-space:normal}\n"
    ".slider{display:none}.js .slider{display:block;background:var(--panel);padding:1rem;"
    "border:1px solid var(--rule);border-radius:6px;max-width:30rem}"
    ".slider label{display:block;margin:.3rem 0}.slider select,.slider "
    "input{width:100%;font:inherit}"
    ".stack{position:relative;width:min(100%,24rem);margin:.6rem 0}.stack "
    "img{display:block;width:100%}"
    ".stack img+img{position:absolute;inset:0;clip-path:inset(0 0 0 var(--cut,50%))}"
    ".stack::after{content:\"\";position:absolute;top:0;bottom:0;left:var(--cut,50%);width:2px;"
    "background:var(--c0)}\n"
    "pre{overflow-x:auto;background:var(--panel);border:1px solid var(--rule);border-radius:6px;"
    "padding:.7rem;font-size:.85rem;margin:.4rem "
    "0}pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}"
    "summary{cursor:pointer;margin:.5rem 0}"
    "code{font-size:.9em;overflow-wrap:anywhere}details{max-width:46rem}\n"
    "@media print{:root{--ground:#fff;--panel:#fff;--ink:#000;--soft:#444;--rule:#bbb;--grid:#ddd;"
    "--good:#11672f;--bad:#a3201c;--c0:#1f66c1;--c1:#b8510e;--c2:#0e7a55;--c3:#8a3fb0;--c4:#a8244f;"
    "--c5:#0f7484;--c6:#7a6408;--c7:#5a5f6b}body{font-size:11px}.slider,.js .slider{display:none}"
    ".scroll{overflow:visible}tr,figure{break-inside:avoid}h2{break-after:avoid}"
    ".pictures img{width:80px}}\n";

/* The slider, of pictures that the page has already. */
static const char script[] =
    "(function(){var s=document.querySelector('.slider');if(!s)return;"
    "document.documentElement.classList.add('js');"
    "var a=s.querySelector('.stack img'),b=s.querySelectorAll('.stack img')[1],"
    "p=s.querySelector('#row'),v=s.querySelector('#column'),r=s.querySelector('#cut');"
    "function show(){var x=document.getElementById('p'+p.value+'r'),"
    "y=document.getElementById('p'+p.value+'c'+v.value);if(x&&y){a.src=x.src;b.src=y.src;"
    "a.alt=x.alt;b.alt=y.alt;b.hidden=false}else{b.hidden=true}}"
    "function cut(){s.querySelector('.stack').style.setProperty('--cut',r.value+'%')}"
    "p.onchange=v.onchange=show;r.oninput=cut;show();cut()})();\n";

void oz_page_begin(struct oz_buf *b, const char *title)
{
    oz_buf_puts(b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                   "<link rel=\"icon\" href=\"data:,\">\n<title>");
    oz_html_text(b, title);
    oz_buf_puts(b, "</title>\n<style>\n");
    oz_buf_puts(b, style);
    oz_buf_puts(b, style_more);
    oz_buf_puts(b, "</style>\n</head>\n<body>\n");
}

void oz_page_end(struct oz_buf *b, const char *foot)
{
    oz_buf_puts(b, "</main>\n<footer><p>");
    oz_html_text(b, foot);
    oz_buf_puts(b, "</p></footer>\n<script>\n");
    oz_buf_puts(b, script);
    oz_buf_puts(b, "</script>\n</body>\n</html>\n");
}

void oz_page_scroll_begin(struct oz_buf *b, const char *name)
{
    oz_buf_puts(b, "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"");
    oz_html_text(b, name);
    oz_buf_puts(b, "\">\n");
}

void oz_page_scroll_end(struct oz_buf *b)
{
    oz_buf_puts(b, "</div>\n");
}

void oz_page_copy(struct oz_buf *b, const char *summary, const char *text)
{
    oz_buf_puts(b, "<details><summary>");
    oz_html_text(b, summary);
    oz_buf_puts(b, "</summary>\n<pre tabindex=\"0\">");
    oz_html_text(b, text);
    oz_buf_puts(b, "</pre></details>\n");
}
