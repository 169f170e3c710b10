"""The page's style: system fonts, one column, print without colour."""

CSS = """
:root{--ink:#1a1a1a;--soft:#555;--line:#d5d5d5;--pale:#f5f5f2;--alarm:#b00020}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;color:var(--ink);background:#fff;
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif}
main,header,footer{max-width:78rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:1.25rem}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.3rem;line-height:1.25;margin:0 0 .2rem}
h3{font-size:1.02rem;margin:1.5rem 0 .3rem}
p{margin:.35rem 0;max-width:80ch}
section{border-top:2px solid var(--ink);margin-top:2.5rem;padding-top:1rem}
.soft{color:var(--soft)}
.small{font-size:.85rem}
a{color:#004b87;overflow-wrap:anywhere}
.alarm{border:3px solid var(--alarm);color:var(--alarm);padding:.5rem .8rem;font-weight:700;
  margin:.6rem 0;max-width:none}
.note{border-left:4px solid var(--line);padding-left:.7rem}
.figures{display:flex;flex-wrap:wrap;gap:1rem;align-items:flex-start;margin:.6rem 0}
.figures>div{flex:1 1 20rem;min-width:0}
.figures svg{display:block;width:100%;height:auto}
figure{margin:1rem 0}
figcaption{font-size:.88rem;color:var(--soft);max-width:85ch}
.wide{overflow-x:auto;margin:.4rem 0;max-width:100%}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-size:.88rem;color:var(--soft);padding-bottom:.25rem}
th,td{padding:.22rem .7rem .22rem 0;border-bottom:1px solid var(--line);text-align:right;
  vertical-align:top}
th{font-weight:600;border-bottom:1.5px solid var(--ink);vertical-align:bottom}
td{white-space:nowrap}
.w{text-align:left;white-space:normal}
td.k{white-space:nowrap}
td.v{font-weight:600;min-width:16rem}
.sign{display:inline-block;width:1.25em;font-weight:700;text-align:center}
.equal .sign{color:#00664b}.slower .sign,.more .sign{color:#a03c00}
.faster .sign,.less .sign{color:#004b87}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.88rem;
  margin:.6rem 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
details{margin:.8rem 0}
summary{cursor:pointer;font-weight:600}
ul{padding-left:1.2rem;margin:.3rem 0}
li{max-width:85ch}
.summary ul{list-style:none;padding:0;margin:0}
.summary td{vertical-align:top}
.summary li{margin-bottom:.1rem}
footer{border-top:1px solid var(--line);margin-top:3rem;padding-bottom:2rem;font-size:.88rem}
footer dl{display:block}footer dt{color:var(--ink);font-weight:600;margin-top:.6rem}
@media (max-width:700px){
  body{font-size:15px}
  main,header,footer{padding-left:.8rem;padding-right:.8rem}
  dl{grid-template-columns:1fr}dd{margin-bottom:.3rem}
  .cards thead{position:absolute;left:-9999px;width:1px;height:1px;overflow:hidden}
  .cards,.cards tbody,.cards tr,.cards td{display:block;width:100%}
  .cards tr{border-bottom:1.5px solid var(--ink);padding:.45rem 0}
  .cards td,.cards td.k{border:0;text-align:left;padding:.05rem 0;white-space:normal}
  .cards td[data-h]::before{content:attr(data-h) ": ";color:var(--soft);font-weight:400}
  .cards td.w:first-child{font-weight:700}
  .cards caption,.cards td:empty{display:none}
  .cards td:not(.w){display:inline-block;width:auto;margin-right:.9rem}
  .figures>div{flex-basis:100%}
}
@media print{
  body{font-size:10pt}
  main,header,footer{max-width:none;padding:0}
  section{break-before:auto}
  figure,tr,dl{break-inside:avoid}
  .wide{overflow:visible}
  table{font-size:7pt}
  th,td{padding-right:.3rem}
  td,td.k{white-space:normal}
  td.v{min-width:7rem}
  .figures svg{max-width:9cm!important}
  a{color:inherit;text-decoration:none}
  .alarm,.sign{color:#000!important}
  details::details-content{content-visibility:visible;display:block}
}
"""
